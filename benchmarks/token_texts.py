"""Texts of every kind that a window holds: languages, code, and the output of tools. Made up, from a seed."""

from __future__ import annotations

import base64
import json
import random
import string
import uuid
from collections.abc import Callable, Mapping
from typing import Final

__all__ = ["PROSE", "texts"]

LANGUAGES: Final[Mapping[str, str]] = {
    "English": (
        "The meeting was moved to Thursday because two of the engineers were travelling. We agreed that the old "
        "payment service will stay online until the end of March, and that nobody deletes a record before the "
        "backup has been checked. She asked whether the report could be shorter; I think it can, if we leave out "
        "the figures of last year. Most customers never open the settings page, so the default has to be right. "
        "When the test fails again, please write down the exact time and the name of the machine."
    ),
    "German": (
        "Die Besprechung wurde auf Donnerstag verschoben, weil zwei der Ingenieurinnen unterwegs waren. Wir haben "
        "uns darauf geeinigt, dass der alte Zahlungsdienst bis Ende März erreichbar bleibt und niemand einen "
        "Datensatz löscht, bevor die Sicherungskopie geprüft wurde. Die Krankenversicherungsbeiträge müssen "
        "rückwirkend berechnet werden. Sie fragte, ob der Bericht kürzer sein könnte; das geht, wenn wir die "
        "Zahlen des letzten Jahres weglassen. Bitte schreibe die genaue Uhrzeit und den Rechnernamen auf."
    ),
    "French": (
        "La réunion a été déplacée à jeudi parce que deux des ingénieures étaient en voyage. Nous avons décidé que "
        "l'ancien service de paiement resterait en ligne jusqu'à la fin du mois de mars et que personne "
        "n'effacerait un enregistrement avant la vérification de la sauvegarde. Elle a demandé si le rapport "
        "pouvait être plus court ; c'est possible si l'on omet les chiffres de l'année dernière."
    ),
    "Spanish": (
        "La reunión se trasladó al jueves porque dos de las ingenieras estaban de viaje. Acordamos que el antiguo "
        "servicio de pagos seguirá en línea hasta finales de marzo y que nadie borrará un registro antes de "
        "comprobar la copia de seguridad. Preguntó si el informe podía ser más corto; creo que sí, si dejamos "
        "fuera las cifras del año pasado. Por favor, anota la hora exacta y el nombre de la máquina."
    ),
    "Russian": (
        "Совещание перенесли на четверг, потому что две сотрудницы были в командировке. Мы договорились, что "
        "старая платёжная система останется доступной до конца марта и что никто не удалит запись, пока не "
        "проверена резервная копия. Она спросила, нельзя ли сделать отчёт короче; думаю, можно, если не включать "
        "цифры прошлого года. Когда тест снова не пройдёт, запишите точное время и имя машины."
    ),
    "Greek": (
        "Η συνάντηση μεταφέρθηκε για την Πέμπτη, επειδή δύο από τις μηχανικούς ταξίδευαν. Συμφωνήσαμε ότι η παλιά "
        "υπηρεσία πληρωμών θα παραμείνει διαθέσιμη μέχρι το τέλος Μαρτίου και ότι κανείς δεν θα διαγράψει μια "
        "εγγραφή πριν ελεγχθεί το αντίγραφο ασφαλείας."
    ),
    "Arabic": (
        "تم نقل الاجتماع إلى يوم الخميس لأن اثنتين من المهندسات كانتا في سفر. اتفقنا على أن تبقى خدمة الدفع القديمة "
        "متاحة حتى نهاية شهر مارس، وألا يحذف أحد أي سجل قبل التحقق من النسخة الاحتياطية. سألت هل يمكن أن يكون "
        "التقرير أقصر، وأظن أن ذلك ممكن إذا تركنا أرقام السنة الماضية."
    ),
    "Hebrew": (
        "הפגישה נדחתה ליום חמישי משום ששתיים מהמהנדסות היו בנסיעה. הסכמנו ששירות התשלומים הישן יישאר זמין עד סוף "
        "מרץ ושאיש לא ימחק רשומה לפני שהגיבוי נבדק."
    ),
    "Hindi": (
        "बैठक को गुरुवार तक टाल दिया गया क्योंकि दो इंजीनियर यात्रा पर थीं। हम इस बात पर सहमत हुए कि पुरानी भुगतान सेवा "
        "मार्च के अंत तक चालू रहेगी और बैकअप की जाँच होने से पहले कोई भी रिकॉर्ड नहीं हटाएगा। उसने पूछा कि क्या रिपोर्ट छोटी हो "
        "सकती है; मुझे लगता है कि हो सकती है, यदि हम पिछले साल के आँकड़े छोड़ दें।"
    ),
    "Thai": (
        "การประชุมถูกเลื่อนไปเป็นวันพฤหัสบดีเพราะวิศวกรสองคนกำลังเดินทาง เราตกลงกันว่าระบบชำระเงินเดิมจะยังใช้งานได้จนถึงสิ้นเดือนมีนาคม "
        "และจะไม่มีใครลบข้อมูลก่อนตรวจสอบสำเนาสำรอง เธอถามว่ารายงานสั้นกว่านี้ได้ไหม ฉันคิดว่าได้ถ้าเราตัดตัวเลขของปีที่แล้วออก"
    ),
    "Chinese": (
        "会议改到星期四，因为有两位工程师在出差。我们商定，旧的支付服务保留到三月底，在备份检查完之前，谁也不能删除记录。"
        "她问报告能不能短一些；我想可以，只要不写去年的数字。大多数客户从来不打开设置页面，所以默认值必须合理。"
        "如果测试再次失败，请记下准确的时间和机器的名称。徐霞客晚年游历云贵，所著《徐霞客游记》对喀斯特溶洞的记载尤为翔实。"
        "该镇辖十二个行政村，盛产柑橘、茶叶与楠竹，镇政府驻地距县城约三十八公里，省道穿境而过。"
    ),
    "Japanese": (
        "会議は、エンジニアのうち二人が出張中だったため、木曜日に変更されました。古い決済サービスは三月末まで残し、"
        "バックアップの確認が終わるまで誰も記録を削除しないことにしました。レポートをもっと短くできないかと聞かれましたが、"
        "昨年の数字を省けば可能だと思います。テストがまた失敗したら、正確な時刻とマシンの名前を書き留めてください。"
    ),
    "Korean": (
        "엔지니어 두 명이 출장 중이어서 회의가 목요일로 변경되었습니다. 기존 결제 서비스는 3월 말까지 유지하고, 백업을 "
        "확인하기 전에는 아무도 기록을 삭제하지 않기로 했습니다. 보고서를 더 짧게 쓸 수 있는지 물었는데, 작년 수치를 빼면 "
        "가능할 것 같습니다. 테스트가 다시 실패하면 정확한 시각과 장비 이름을 적어 주세요."
    ),
}

CODE: Final[Mapping[str, str]] = {
    "Python": '''
class OrderRepository:
    """Loads and stores orders."""

    def __init__(self, connection: Connection, *, clock: Callable[[], int] = time.time_ns) -> None:
        self._connection = connection
        self._clock = clock

    def find_open(self, customer_id: int, limit: int = 50) -> list[Order]:
        rows = self._connection.execute(
            "SELECT id, total, created_at FROM orders WHERE customer_id = ? AND closed_at IS NULL LIMIT ?",
            (customer_id, limit),
        ).fetchall()
        return [Order(id=row["id"], total=Decimal(row["total"]), created_at=row["created_at"]) for row in rows]
''',
    "SQL": """
CREATE TABLE order_items (
    id BIGSERIAL PRIMARY KEY,
    order_id BIGINT NOT NULL REFERENCES orders (id) ON DELETE CASCADE,
    sku VARCHAR(64) NOT NULL,
    unit_price NUMERIC(12, 2) NOT NULL CHECK (unit_price >= 0)
);
SELECT o.id, SUM(i.unit_price * i.quantity) AS total FROM orders o LEFT JOIN order_items i ON i.order_id = o.id
WHERE o.created_at >= NOW() - INTERVAL '30 days' GROUP BY o.id HAVING COUNT(*) > 3 ORDER BY total DESC LIMIT 20;
""",
    "HTML": """
<div class="card mb-3" id="order-1042"><div class="card-body"><h5 class="card-title">Order&nbsp;#1042</h5>
<ul class="list-group list-group-flush"><li class="list-group-item"><a href="/orders/1042/items/7">Item 7</a></li></ul>
<button type="button" class="btn btn-primary" data-toggle="modal" data-target="#confirm">Cancel order</button></div></div>
""",
    "LaTeX": r"""
\begin{theorem}[Stability]\label{thm:stable} Let $f\colon \mathbb{R}^n \to \mathbb{R}$ be convex and $\nabla f$ be
$L$-Lipschitz. Then $\|x_{k+1} - x^\ast\|_2^2 \le \left(1 - \tfrac{\mu}{L}\right)^k \|x_0 - x^\ast\|_2^2$.
\end{theorem} \begin{align} \sum_{i=1}^{n} \alpha_i \, \frac{\partial \ell}{\partial \theta_i} &= \mathcal{O}(\sqrt{n}) \\
\mathrm{Var}(\hat{\beta}) &= \sigma^2 (X^\top X)^{-1} \end{align}
""",
    "minified JavaScript": (
        '!function(e,t){"object"==typeof exports&&"undefined"!=typeof module?t(exports):t((e=e||self).q={})}(this,'
        "function(e){var t,n=[],r=0;function o(e,t){for(var n in t)e[n]=t[n];return e}function i(e){var t=e.parentNode;"
        't&&t.removeChild(e)}e.h=function(e,n,r){var i,l,u,c={};for(u in n)"key"==u?i=n[u]:"ref"==u?l=n[u]:c[u]=n[u];'
        "return arguments.length>2&&(c.children=arguments.length>3?t.call(arguments,2):r),a(e,c,i,l,null)},e.v=void 0});"
    ),
    "diff": """
diff --git a/src/orders/repository.py b/src/orders/repository.py
index 3f2a91c..b07d4e8 100644
--- a/src/orders/repository.py
+++ b/src/orders/repository.py
@@ -41,9 +41,11 @@ class OrderRepository:
-        rows = self._connection.execute(QUERY, (customer_id,)).fetchall()
+        rows = self._connection.execute(QUERY, (customer_id, limit)).fetchall()
+        if not rows:
+            return []
         return [Order.from_row(row) for row in rows]
""",
}

PROSE: Final = frozenset(LANGUAGES)
"""The kinds for which too high an estimate costs most."""


def texts(*, size: int = 20_000, seed: int = 1) -> dict[str, str]:
    """Make a text of about `size` characters of every kind."""
    rng = random.Random(seed)  # noqa: S311 - the same texts every time
    fixed = {**LANGUAGES, **CODE}
    made = {kind: (text + "\n") * (size // len(text) + 1) for kind, text in fixed.items()}
    for kind, line in LINES.items():
        rows: list[str] = []
        length = 0
        while length < size:
            rows.append(line(rng))
            length += len(rows[-1]) + 1
        made[kind] = "\n".join(rows)
    return made


def _chars(rng: random.Random, alphabet: str, length: int) -> str:
    return "".join(rng.choices(alphabet, k=length))


def _hexdump(rng: random.Random) -> str:
    data = rng.randbytes(16)
    shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in data)
    return f"{rng.randrange(2**20) * 16:08x}  {data[:8].hex(' ')}  {data[8:].hex(' ')}  |{shown}|"


def _log(rng: random.Random) -> str:
    level = rng.choice(("INFO", "INFO", "DEBUG", "WARN", "ERROR"))
    return (
        f"2026-0{rng.randrange(1, 10)}-{rng.randrange(10, 29)}T{rng.randrange(10, 24)}:{rng.randrange(10, 60)}:"
        f"{rng.randrange(10, 60)}.{rng.randrange(1000):03}Z {level} [http-nio-8080-exec-{rng.randrange(20)}] "
        f"c.e.shop.OrderService request={rng.randbytes(6).hex()} status={rng.choice((200, 201, 404, 500))} "
        f"took={rng.randrange(2000)}ms"
    )


def _record(rng: random.Random) -> str:
    value = {
        "id": rng.randrange(10**7),
        "userName": rng.choice(("anna", "bo", "chen", "dimitri")),
        "isActive": rng.random() < 0.5,
        "balance": round(rng.random() * 1e4, 2),
        "tags": ["new", "eu-west-1"],
        "lastLogin": None,
    }
    return json.dumps(value, indent=rng.choice((None, 2)))


def _listing(rng: random.Random) -> str:
    name = f"{rng.choice(('report', 'index', 'utils', 'main'))}_{rng.randrange(100)}.py"
    return f"-rw-r--r--  1 deploy  staff  {rng.randrange(10**6):>8} Mar {rng.randrange(1, 29):>2} 10:{rng.randrange(10, 60)} {name}"


def _cells(rng: random.Random) -> str:
    return f"| {rng.choice(('alpha', 'beta', 'gamma')):<12} | {rng.random():>8.4f} | {rng.randrange(10**5):>8,} | {'ok':^6} |"


def _path(rng: random.Random) -> str:
    parts = (
        "src",
        "node_modules",
        ".pnpm",
        "components",
        "@types",
        "OrderList",
        "__tests__",
        "v2",
        "api-client",
        "dist",
    )
    return "/home/user/shop/" + "/".join(rng.sample(parts, 4)) + rng.choice((".tsx", ".test.js", "/index.d.ts"))


LINES: Final[Mapping[str, Callable[[random.Random], str]]] = {
    "JSON": _record,
    "logs with timestamps": _log,
    "file listing": _listing,
    "table": _cells,
    "box table": lambda rng: (
        f"│ {rng.choice(('alpha', 'beta')):<10} │ {rng.randrange(10**5):>7} │\n├{'─' * 12}┼{'─' * 9}┤"
    ),
    "paths": _path,
    "CSV of numbers": lambda rng: ",".join(f"{rng.uniform(-1000, 1000):.{rng.randrange(7)}f}" for _ in range(12)),
    "CSV of integers": lambda rng: ",".join(str(rng.randrange(10 ** rng.randrange(1, 9))) for _ in range(12)),
    "digits": lambda rng: _chars(rng, string.digits, 60),
    "hex": lambda rng: rng.randbytes(32).hex(),
    "upper-case hex": lambda rng: rng.randbytes(32).hex().upper(),
    "one line of hex": lambda rng: rng.randbytes(10_000).hex(),
    "hex bytes": lambda rng: ", ".join(f"0x{byte:02x}" for byte in rng.randbytes(12)) + ",",
    "hexdump": _hexdump,
    "UUIDs": lambda rng: str(uuid.UUID(bytes=rng.randbytes(16), version=4)),
    "base64": lambda rng: base64.b64encode(rng.randbytes(57)).decode(),
    "one line of base64": lambda rng: base64.b64encode(rng.randbytes(15_000)).decode(),
    "base32": lambda rng: base64.b32encode(rng.randbytes(40)).decode(),
    "base36": lambda rng: _chars(rng, string.ascii_lowercase + string.digits, 40),
    "random letters": lambda rng: _chars(rng, string.ascii_lowercase, 40),
    "random ASCII": lambda rng: _chars(rng, string.printable[:94], 60),
    "emoji": lambda rng: "".join(rng.choices(("😀", "🚀", "✅", "🎉", "👩‍💻", "🇩🇪", "❤️", "🔥", "👍🏽", " "), k=30)),
    "ANSI colours": lambda rng: (
        f"\x1b[{rng.randrange(30, 38)}m{rng.choice(('PASS', 'FAIL'))}\x1b[0m tests/test_{rng.randrange(99)}.py\x1b[2K\x1b[1G"
    ),
    "whitespace": lambda rng: " " * rng.randrange(80) + "\t" * rng.randrange(6) + "\n" * rng.randrange(3) + "}",
    "symbols": lambda rng: _chars(rng, string.punctuation, 60),
    "rare scripts": lambda rng: "".join(
        chr(rng.choice((0x1200, 0x1780, 0x0F40, 0x10A0, 0x0D05)) + rng.randrange(40)) for _ in range(30)
    ),
}
"""Kinds that are made line by line."""
