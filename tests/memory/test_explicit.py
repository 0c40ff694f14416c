"""Facts without a model: only what is explicit."""

from __future__ import annotations

import pytest

from holdfast.memory import facts
from holdfast.memory.block import Fact, render
from holdfast.memory.extract import read_explicit
from holdfast.memory.facts import Draft
from support.cases import each
from support.conversations import MARKS
from support.fact_scripts import learn, make_row, rows


def only(text: str) -> Draft:
    """Return the one fact that a message of the user states."""
    (found,) = read_explicit([make_row(1, text)])
    return found


@each(
    "text",
    [
        "Remember that the customer pays late.",
        "Please keep in mind that we bill in euros.",
        "Ok, I've decided on the second layout for the shop.",
        "Decision: sessions expire after 30 minutes.",
        "We decided to drop support for Windows 7.",
        "We have decided not to use GraphQL for the shop.",
        "The team decided against a second queue.",
        "We agreed that invoices are rendered with Typst.",
        "我们决定不再支持旧版浏览器。",
        "我们最终决定日志保留三十七天。",
        "The team voted: no deploys on Fridays.",
        "Please always answer in German.",
        "Never push to main without a review.",
        "Ab jetzt bitte immer auf Deutsch antworten.",
        "以后回答都用中文。",
        "We decided to keep the tests next to the code.",
        "We decided to run Postgres on our own servers.",
        "We agreed that we bill in euros.",
        "The team decided against caching on the client.",
        "我们决定不用 Redis。",
        "我们决定后端改用 Go。",
        "團隊決定把訂單存放在 MySQL。",
        "From now on, answer in French and be brief.",
        "It was decided that refunds take at most ten days.",
        "We chose Stripe as the only payment provider.",
        "The committee has resolved that nobody keeps chickens on a plot.",
        "We're going with Hetzner for the staging cluster.",
        "Invoices go out with 30 days net, no exceptions.",
        "Every pull request must have two approvals.",
        "Our rule for the flat: guests stay three nights at most.",
        "No more Friday deploys, we all signed off on that.",
        "Marta and I decided that the tests run every evening.",
        "Nobody deploys on Fridays from now on.",
        "团队约定每天早上九点半开站会。",
        "服务器监控我们选了 Prometheus。",
        "店里的规矩定下来了：满三十元起送。",
        "うちの店は火曜日を定休日にすることにしました。",
        "リリースは毎週水曜に行うとチームで合意しました。",
        "请记住客户总是晚付款。",
        "决定：用 PostgreSQL。",
        "从现在起，所有提交都要有测试。",
    ],
)
def test_a_memory_or_decision_is_kept_as_it_was_written(text: str) -> None:
    """It has no slot, so it replaces nothing, and its quote is the sentence."""
    found = only(f"Hello there. {text} Thanks!")
    assert (found.type, found.content, found.quote, found.slot, found.evidence) == ("decision", text, text, "", (1,))


@each(
    "text",
    [
        "Remember that refunds above 500 euros need the approval of Dagny.",
        "Please remember that Anna is on leave.",
        "Remember that staging is down…",
        "Remember that customers in Norway pay in kroner.",
        "remember that the warehouse is closed on mondays",
        "please remember that my name is spelt with a k",
        "Ok, remember that time zones matter for the invoices.",
        "Remember that meeting rooms are booked by Tomas.",
        "Remember that once the build is green, Ops deploys.",
        "Remember that if the queue is full, orders may be lost.",
        "Remember, that flush() must be called before close().",
        'Remember that the project is called "Northern Lighthouse Two".',
        "Don't forget that nobody works on Fridays.",
        "Remember I'm allergic to nuts.",
        "Please remember my name is spelled with a k.",
        "Note to self: the passport expires in March.",
        "Vergiss nicht, dass ich kein Fleisch esse.",
        "Merk dir: Der Schlüssel hängt am Kühlschrank.",
        "覚えておいて：私の誕生日は5月3日です。",
        "Remember that " + "the orders of the north are packed by hand, " * 8 + "always.",
        "记住周五不发货。",
        "记住：客户在挪威用克朗付款。",
        "请记住，去机场要提前两小时。",
        "请记住你的名字是小明。",
        "请你务必记住退款超过五百欧元要达格尼批准。",
        "請記住客戶總是晚付款。",
        "麻烦记一下，安娜下周休假。",
    ],
)
def test_what_the_user_asks_to_remember_is_always_kept(text: str) -> None:
    """Whatever word follows, and however long or conditional the sentence is."""
    assert only(f"Hello there.\n{text}\nThanks!").content == text


@each(
    "text",
    [
        "Do you remember that refunds need approval?",
        "Remember that refunds need approval?",
        "Remember that time we went to Rome.",
        "Remember that bug.",
        "I remember that Anna is on leave.",
        "> Remember that Anna is on leave.",
        'Her mail was: "Hello. Remember that Anna is on leave." Funny.',
        "```\nRemember that Anna is on leave.\n```",
        "记住了吗？",
        "记住了，谢谢你们。",
        "你记住端口是多少了吗。",
        "她写道：“你好。请记住安娜在休假。”",
    ],
)
def test_a_question_or_a_quotation_asks_to_remember_nothing(text: str) -> None:
    """Neither does something that is pointed at."""
    assert read_explicit(rows(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "Change the timeout to 30 seconds.",
        "Move the button to the left and run the tests.",
        "把超时改成 30 秒。",
        "把发票模板改成新的格式。",
        "将登录页改为深色模式，然后跑测试。",
    ],
)
def test_an_order_to_change_something_is_no_decision(text: str) -> None:
    """It is the next step of some work: that something was changed is said in other words."""
    assert read_explicit(rows(text)) == []


def test_a_change_that_was_made_is_a_decision() -> None:
    """The user says who made it, or that it is made."""
    assert only("我们把支付服务的端口从 8080 改为 9090。").value == "9090"
    assert only("已把支付服务的端口从 8080 改为 9090。").value == "9090"


def test_only_words_of_the_user_are_remembered() -> None:
    """Not those of the assistant or of a tool."""
    for role in ("assistant", "tool"):
        assert read_explicit([make_row(1, "Remember that Anna is on leave.", role=role)]) == []


@each(
    "text",
    [
        "We have not agreed on the number of retries, nothing is settled on that.",
        "If the board has voted on it, we can begin.",
        "Is it final that we use Hetzner?",
        "It's official.",
        "No exceptions.",
        "That's what we agreed on for the summary, no exceptions there.",
        "I hope that everyone signed off on this.",
        "监控方案还没定下来。",
        "会议时间定下来了吗？",
        "リリース日はまだ決めていません、いつ決めましたか。",
    ],
)
def test_what_is_not_settled_or_not_named_is_no_decision(text: str) -> None:
    """The words of a decision are there, but it is open, asked or somewhere else."""
    assert read_explicit([make_row(1, text)]) == []


@each(
    ("text", "subject", "slot", "value", "old"),
    [
        ("We moved the API to port 9090.", "the API", "port", "9090", ""),
        ("I changed the timeout of the worker from 5 s to 10 s.", "the worker", "timeout", "10 s", "5 s"),
        ("The docs have moved to https://docs.acme.test/v2.", "The docs", "url", "https://docs.acme.test/v2", ""),
        ("We upgraded Terraform from 1.5.7 to 1.6.0.", "Terraform", "version", "1.6.0", "1.5.7"),
        ("我们把支付服务的端口从 8080 改为 9090。", "支付服务", "port", "9090", "8080"),
        ("Use ruff instead of flake8.", "", "", "ruff", "flake8"),
        ("Correction: the demo is on Friday.", "", "", "", ""),
        ("I changed my mind: keep the old logo on the page.", "", "", "", ""),
        ("请不要用 npm，改用 pnpm。", "", "", "", ""),
    ],
)
def test_a_correction_names_the_value_that_it_replaces(
    text: str, subject: str, slot: str, value: str, old: str
) -> None:
    """Subject, property, new and old value are read from plain forms; other corrections are kept as remarks."""
    found = only(text)
    assert (found.content, found.subject.split(), found.slot) == (text, subject.split(), slot)
    assert (found.value, found.old) == (value, old)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("MAX_RETRIES=5", "5"),
        ("Set MAX_RETRIES to 7.", "7"),
        ("- `MAX_RETRIES` = 8", "8"),
        ("MAX_RETRIES is now 9", "9"),
    ],
)
def test_a_setting_is_known_by_its_name(text: str, value: str) -> None:
    """`KEY=value` and its plain variants become a configuration fact with a slot."""
    found = only(f"Hello!\n{text}")
    assert (found.type, found.subject, found.slot, found.value) == ("config", "MAX_RETRIES", "value", value)


def test_a_task_is_open_until_it_is_done() -> None:
    """The same task, unticked and ticked, is one subject with two states; the later one replaces the earlier."""
    conversation = rows(
        "- [ ] write the migration", "- [x] write the migration", "TODO: add an index", "待办：补充测试"
    )
    opened, done, note, chinese = read_explicit(conversation)
    assert (opened.subject, opened.slot, opened.value) == ("write the migration", "status", "open")
    assert (done.subject, done.value, note.type, chinese.subject) == (
        "write the migration",
        "done",
        "task_state",
        "补充测试",
    )
    held = facts.current(learn(conversation).rows_to_add)
    assert held[0].content == "- [x] write the migration"


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ("MAX_RETRIES=5", "MAX_RETRIES"),
        ("TODO: add an index", "add an index"),
        ("- [ ] write the docs", "write the docs"),
        ("待办：补测试", "补测试"),
        ("待办：部署", "部署"),
    ],
)
def test_a_setting_or_a_task_is_a_line_of_its_own(line: str, subject: str) -> None:
    """In a longer message too, and a task of a few Chinese characters is one; within a line it is not read."""
    assert only(f"Thanks, that reads better.\n{line}\nNext, have a look at the slow query.").subject == subject
    assert read_explicit([make_row(1, f"Thanks, that reads better. {line} Next, look at the query.")]) == []


@each(
    "text",
    [
        "The billing API listens on port 8080.",
        "I live in Hamburg.",
        "We decided to meet again tomorrow.",
        "We decided to wait for the review.",
        "We decided to use it.",
        "I decided to keep going.",
        "We agreed that this is fine.",
        "We agreed on the plan.",
        "Let's go with the second layout.",
        "我们决定先吃饭。",
        "We decided to keep going with the tests.",
        "We decided to keep an eye on the queue.",
        "We decided to run the tests again.",
        "We decided to run a quick experiment.",
        "We decided to call a meeting about the incident.",
        "We decided to drop the idea for now.",
        "We decided to release the importer tomorrow.",
        "We agreed that the plan was for the thesis.",
        "We agreed that you are right about this.",
        "We agreed that nobody knows the answer.",
        "We decided that we talk about the schema on Monday.",
        "We decided against going out.",
        "我们决定不了用哪个数据库。",
        "我们决定不下来要用什么。",
        "我们决定权在老板手里，用户没有。",
        "我们决定性的一步是迁移数据库。",
        "我们决定的时候没有想到使用成本。",
        "我们决定之前要先取消会议。",
        "我们决定是否上线还要等测试结果。",
        "我们决定周五开会讨论。",
        "我们决定见面聊一下。",
        "团队决定聚餐庆祝一下。",
        "我们决定下周再决定用什么。",
        "Have we decided to drop Windows 7?",
        "I have decided.",
        "Let's stick with that.",
        "Do you remember that evening in Rome?",
        "Remember that evening in Rome.",
        "We changed it to simplify things.",
        "> Decision: drop support for Windows 7.",
        "```\nMAX_RETRIES=5\n```",
        "if (MAX_RETRIES == 5) {",
        'The page reads "From now on we drop support for Windows 7".',
        "2026-01-02 10:00:01 INFO MAX_RETRIES=5",
        "--- a/README.md\n+++ b/README.md\n-We decided to drop Windows 7.\n+We decided to drop Windows 8.",
        "Our competitor's team decided to drop Windows 7.",
        "In my novel the council decided that magic must be banned from now on.",
        "Dear customer,\nFrom now on, your monthly fee will be 12 euros.",
        "The page of the fork says:\nRemember that the key must be set.",
        "次の文を英語にして：来月から会議は英語で行うことにしました。",
        "你决定了吗？",
        "我觉得决定得太快。",
        "ok",
        "NO_REPLY",
    ],
)
def test_everything_else_needs_a_model(text: str) -> None:
    """Plain statements, questions, quotations, code, logs and noise are not read without one."""
    assert read_explicit(rows(text)) == []


def test_only_the_user_states_facts() -> None:
    """What an assistant writes is not read without a model."""
    assert read_explicit([make_row(1, "Decision: drop support for Windows 7.", role="assistant")]) == []


def test_recalled_text_is_not_extracted_from() -> None:
    """A block in a message is skipped; the words around it are read."""
    block = render([Fact(type="decision", text="Decision: drop support for Windows 7.")], [], MARKS)
    assert read_explicit(rows(block), MARKS) == []
    (found,) = read_explicit(rows(f"{block}\n\nDecision: keep support for Windows 8."), MARKS)
    assert found.content == "Decision: keep support for Windows 8."


def test_a_secret_is_never_a_fact() -> None:
    """Neither a secret nor its mask is stored."""
    conversation = rows("Remember that the token is ghp_" + "a1B2" * 9 + ".", "Remember that: [REDACTED:token]")
    assert read_explicit(conversation) == []


def test_of_a_pasted_text_only_the_ends_are_read() -> None:
    """A long text was mostly pasted; the words before and after it are the user's."""
    pasted = "\n".join(f"SERVER_{number}={number + 2000}" for number in range(600))
    found = read_explicit(rows(f"Remember that this is old.\n{pasted}\nMAX_RETRIES=5"))
    assert len(found) < 90
    assert {"Remember that this is old.", "MAX_RETRIES=5"} <= {draft.content for draft in found}


@pytest.mark.parametrize(
    ("stated", "next_message"),
    [
        ("We decided to use Redis for sessions.", "Not Redis, Valkey."),
        ("We decided to use Redis for sessions.", "That was a joke."),
        ("We decided to use Redis for sessions.", "Sorry, wrong chat."),
        ("We decided to use Redis for sessions.", "EDIT: scratch that, Valkey."),
        ("Remember that the code is 1122.", "That's the old one. The code is 2211."),
        ("Remember that the port is 8080.", "Actually forget that."),
        ("Wir haben beschlossen, Redis zu nehmen.", "Quatsch, Valkey natürlich."),
        ("Wir haben beschlossen, Redis zu nehmen.", "Ach nein, doch nicht."),
        ("我们决定用 Kafka。", "不对，说错了，是 RabbitMQ。"),
        ("我们决定用 Kafka。", "刚才那句当我没说。"),
        ("来月から会議は英語で行うことにしました。", "すみません、今のは間違いです。"),
    ],
)
def test_what_the_next_words_take_back_is_no_fact(stated: str, next_message: str) -> None:
    """In the same message, or in the next one."""
    assert read_explicit(rows(stated))
    assert [draft.content for draft in read_explicit(rows(stated, next_message)) if draft.content == stated] == []
    assert [draft.content for draft in read_explicit(rows(f"{stated} {next_message}")) if draft.content == stated] == []


@pytest.mark.parametrize(
    "next_message",
    [
        "That's not right: the test output is empty. Can you look?",
        "Wrong thread count in the config: set it to 8.",
        "Typo. README.",
        "Vergiss das Commit nicht!",
        "Not sessions, but tell me: how do I configure it?",
        "Thanks, never mind what Bob says.",
        "Doch nicht so schwer, danke!",
    ],
)
def test_what_is_said_next_about_something_else_takes_nothing_back(next_message: str) -> None:
    """Most messages that begin like that are about the last reply."""
    stated = "We decided to use Redis for sessions."
    assert stated in [draft.content for draft in read_explicit(rows(stated, next_message))]


@pytest.mark.parametrize(
    "text",
    [
        "always write tests first is what he said",
        "Never commit secrets, my teacher used to say.",
        "The linter prints:\nNever push to main without review.",
        "以后大家都老了就好了。",
        "Künftig könnte das ein Problem werden.",
    ],
)
def test_what_only_sounds_like_a_rule_is_none(text: str) -> None:
    """Somebody else says it, or it may happen."""
    assert read_explicit(rows(text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "Dear Claude,\nplease remember that my name is spelled with a k.",
        "Subject: deployment. We decided to use Redis for sessions.",
        "We decided to use Redis in the game server.",
        "Remember that the launch is in the play store.",
        "Remember that in my book the chapters are numbered from zero.",
    ],
)
def test_a_salutation_or_a_book_makes_no_story(text: str) -> None:
    """The user speaks, and means it."""
    assert len(read_explicit(rows(text))) == 1
