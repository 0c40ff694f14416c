"""What a third party needs to prove a part of its own: the suites that ours have to pass.

from holdfast.testing.store import CHECKS

@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
def test_my_store(check, tmp_path):
    check(open_my_store, tmp_path)
"""
