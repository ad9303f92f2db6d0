"""One transaction over two topics: readers of committed records see both writes, or neither."""

from basics import check, new_topic, producer, read_all, texts, unique

payments, receipts = new_topic("payments"), new_topic("receipts")
writer = producer(transactional_id=unique("till"))
writer.init_transactions()


def pay(customer: str) -> None:
    writer.produce(payments, f"{customer} pays")
    writer.produce(receipts, f"receipt for {customer}")
    writer.flush()  # both are in the log now, and still undecided


def visible() -> tuple[list[str], list[str]]:
    """What a reader sees who wants decided records only."""
    committed = "read_committed"
    return (
        texts(read_all(payments, isolation_level=committed)),
        texts(read_all(receipts, isolation_level=committed)),
    )


writer.begin_transaction()
pay("ada")
print(f"ada has paid, the transaction is open: a reader sees {visible()}")
check(visible() == ([], []), "nothing shows before the commit")
writer.commit_transaction()
print(f"committed: a reader sees {visible()}")
check(visible() == (["ada pays"], ["receipt for ada"]), "both show after the commit")

writer.begin_transaction()
pay("bob")
writer.abort_transaction()
print("bob's payment was aborted")
check(visible() == (["ada pays"], ["receipt for ada"]), "an aborted write shows in neither topic")

writer.begin_transaction()
pay("cleo")
writer.commit_transaction()
seen = visible()
check(
    seen == (["ada pays", "cleo pays"], ["receipt for ada", "receipt for cleo"]),
    "the next transaction shows as usual",
)
undecided = texts(read_all(payments, isolation_level="read_uncommitted"))
print(f"whoever reads uncommitted records sees all of this: {', '.join(undecided)}")
check("bob pays" in undecided, "isolation is the reader's choice")
