"""A consumer that sleeps misses nothing: the log waits, and the group knows where it stood."""

from basics import check, consumer, new_topic, read, texts, unique, write

topic, group = new_topic("sleeper"), unique("night-shift")
written = [f"event {number}" for number in range(10)]

write(topic, written[:4])
reader = consumer(group)
reader.subscribe([topic])
before = texts(read(reader, 4))
reader.commit(asynchronous=False)
reader.close()
print(f"read before going to sleep: {', '.join(before)}")

write(topic, written[4:])
print("written meanwhile: events 4 to 9")

reader = consumer(group)
reader.subscribe([topic])
after = texts(read(reader, 6))
reader.close()
print(f"read after waking up: {', '.join(after)}")
check(before + after == written, "every event was read once, in order, none missed")
