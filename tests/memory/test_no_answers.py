"""Replies that only say that something is not known are archived, and not quoted."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Engine
from holdfast.memory.no_answers import is_no_answer
from holdfast.settings import Embedding, Settings
from support.waiting import UNHURRIED

WORDS_ONLY = Settings(embedding=Embedding(provider="none"), recall=UNHURRIED)


@pytest.mark.parametrize(
    "text",
    [
        "You have not told me about any nut allergy of your child.",
        "I have no note about the time of the backup.",
        "I could not find that.",
        "I don't have any information about your dentist. If you tell me, I'll remember it.",
        "Sorry, I couldn’t find any mention of that in our conversation.",
        "You haven't mentioned which bank you use. Could you tell me?",
        "I don't know which port the staging API uses.",
        "I'm not sure who your dentist is.",
        "I don't know what your favourite restaurant in Porto is.",
        "I don't remember what you decided in March.",
        "You haven't told me in which city you live.",
        "I found no mention of that in the recalled context.",
        "我不清楚你的数据库密码。",
        "No idea.",
        "I don't have your dentist's name on file.",
        "Sorry, your dentist hasn't come up in our chats.",
        "Das weiß ich leider nicht.",
        "抱歉，我没有关于这个的记录。",
        "すみません、その情報は持っていません。",
        "没有找到相关记录。",
        "你没有告诉过我女儿学琴的时间。",
        "我不知道。",
        "記録が見つかりません。",
        "그 정보를 찾을 수 없습니다.",
    ],
)
def test_a_reply_that_knows_nothing_is_recognised(text: str) -> None:
    """With what it offers or asks for."""
    assert is_no_answer(text)


@pytest.mark.parametrize(
    "text",
    [
        "I don't have write access to the repository, so the patch is in /tmp/fix.diff.",
        "I couldn't find the config file in src/, so I created one.",
        "You have not told me the port, so I used 8080.",
        "I don't know why the build failed, but reverting 3fa2 fixes it.",
        "I don't know that. The port is 8443.",
        "There are no records in table users for id 7.",
        "I couldn't find a memory leak in the worker: usage stays the same for hours.",
        "I found no mention of a pet ban in the lease, cats and small dogs are allowed.",
        "I don't remember which agency handed it over but the landlord is Frau Novak.",
        "I did not find information about Jonas in LDAP so Jonas has no account.",
        "You didn't tell Lena the new date so she cannot confirm it.",
        "I found no references to retry_backoff in the module.",
        "I found no records in the sessions table.",
        "There are no records for tenant acme in the sessions table.",
        "I couldn't find any records of access by contractors in the audit log.",
        "It is never mentioned in the contract.",
        "There is no record of the payment at the bank.",
        "I don't see any details on the invoice.",
        "I found no notes in the archive folder.",
        "I do not see any mention of a license in the repository.",
        "日志里没有找到相关错误记录。",
        "数据库里没有查到这个用户的信息。",
        "ログにエラーは見つかりませんでした。",
        "로그에서 오류를 찾을 수 없습니다.",
        "我不清楚专家号的时间,不过医院挂号处周一到周五八点开门。",
        "没有找到漏洞。",
        "You have not run the migrations.",
        "我没有修改那个文件。",
        "找不到文件 config.yaml，我新建了一个。",
        "",
    ],
)
def test_a_reply_that_says_something_is_another(text: str) -> None:
    """What was done, what is missing, or the answer."""
    assert not is_no_answer(text)


def test_the_answer_is_quoted_and_not_the_reply_that_knew_none(tmp_path: Path) -> None:
    """The question was asked before, and the reply to it has all of its words."""
    question = "Which nuts must I keep away from my kid?"
    with Engine.open(tmp_path, settings=WORDS_ONLY, background=False, personal=True) as engine:
        told = [{"role": "user", "content": "Nuts again: my kid swells up badly from cashews, so none at the party."}]
        engine.session("first").append(told)
        asked = [
            {"role": "user", "content": question},
            {"role": "assistant", "content": "You have not told me which nuts to keep away from your kid."},
        ]
        engine.session("second").append(asked)
        block = engine.session("third").recall(question).block
        assert "cashews" in block
        assert "You have not told me" not in block
        assert engine.session("third").search("which nuts have you not told me", limit=5)
