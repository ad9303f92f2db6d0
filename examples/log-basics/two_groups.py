"""Two groups read the same topic: each sees everything, at its own pace."""

from basics import check, consumer, new_topic, read, texts, unique, write

topic = new_topic("two-groups", partitions=2)
written = [f"order {number}" for number in range(20)]
for number, value in enumerate(written):
    write(topic, [value], key=str(number))

billing, shipping = consumer(unique("billing")), consumer(unique("shipping"))
billing.subscribe([topic])
shipping.subscribe([topic])

billed = texts(read(billing, 20))
print(f"billing has read {len(billed)} orders")
shipped = texts(read(shipping, 5))
print(f"shipping is slow and has read {len(shipped)}")
check(sorted(billed) == sorted(written), "billing saw every order")

shipped += texts(read(shipping, 15))
print(f"shipping has caught up and read {len(shipped)}")
check(
    sorted(shipped) == sorted(written), "shipping saw every order too: reading takes nothing away"
)
billing.close()
shipping.close()
