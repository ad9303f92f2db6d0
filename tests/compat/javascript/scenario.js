// The everyday work of kafkajs against one broker: node scenario.js HOST:PORT. Prints a line per
// promise, "ok NAME" or "failed NAME REASON".
const assert = require('assert')
const {
  AclOperationTypes,
  AclPermissionTypes,
  AclResourceTypes,
  CompressionTypes,
  Kafka,
  logLevel,
  ResourcePatternTypes,
} = require('kafkajs')

const WAIT_MS_MAX = 120000
const TOPIC = 2
const kafka = new Kafka({
  clientId: 'scenario',
  brokers: [process.argv[2]],
  logLevel: logLevel.NOTHING,
  retry: { retries: 20 },
})
const admin = kafka.admin()
const producer = kafka.producer()

const within = (promise, what) =>
  Promise.race([
    promise,
    new Promise((_, reject) => setTimeout(() => reject(new Error(what())), WAIT_MS_MAX).unref()),
  ])

const consume = async (topic, groupId, count) => {
  const consumer = kafka.consumer({ groupId })
  const found = []
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const all = new Promise(resolve =>
    consumer.run({
      eachMessage: async ({ message }) => {
        found.push(message)
        if (found.length === count) resolve()
      },
    })
  )
  await within(all, () => `${found.length} of ${count}`)
  await consumer.disconnect()
  return found
}

const values = messages => messages.map(each => each.value.toString())

const config = async name => {
  const resources = [{ type: TOPIC, name, configNames: ['retention.ms'] }]
  const told = await admin.describeConfigs({ resources, includeSynonyms: true })
  return told.resources[0].configEntries[0].configValue
}

const transactional = transactionalId =>
  kafka.producer({ transactionalId, idempotent: true, maxInFlightRequests: 1 })

const promises = {
  topics_are_made_once: async () => {
    const configEntries = [{ name: 'retention.ms', value: '70000' }]
    const topics = [{ topic: 'a', numPartitions: 3, configEntries }, { topic: 'b' }, { topic: 'c' }]
    assert.equal(await admin.createTopics({ topics }), true)
    assert.equal(await admin.createTopics({ topics: [{ topic: 'a' }] }), false)
  },

  topics_are_deleted: async () => {
    await admin.deleteTopics({ topics: ['c'] })
    const left = await admin.listTopics()
    assert(left.includes('a') && !left.includes('c'))
  },

  partitions_are_added: async () => {
    await admin.createPartitions({ topicPartitions: [{ topic: 'a', count: 4 }] })
    const told = await admin.fetchTopicMetadata({ topics: ['a'] })
    assert.equal(told.topics[0].partitions.length, 4)
  },

  configurations_are_described_and_changed: async () => {
    assert.equal(await config('a'), '70000')
    const configEntries = [{ name: 'retention.ms', value: '80000' }]
    await admin.alterConfigs({ resources: [{ type: TOPIC, name: 'a', configEntries }] })
    assert.equal(await config('a'), '80000')
  },

  the_cluster_is_one_broker: async () => {
    assert.equal((await admin.describeCluster()).brokers.length, 1)
  },

  a_group_reads_everything_and_goes_on_where_it_was: async () => {
    const messages = Array.from({ length: 200 }, (_, number) => ({
      key: `k${number % 7}`,
      value: `${number}`,
      headers: { h: 'x' },
    }))
    await producer.send({ topic: 'a', messages, acks: -1 })
    const zipped = [{ key: 'k0', value: '200' }]
    await producer.send({ topic: 'a', acks: 1, compression: CompressionTypes.GZIP, messages: zipped })
    await producer.send({ topic: 'a', acks: 0, messages: [{ key: 'k0', value: '201' }] })

    const found = await consume('a', 'readers', 202)

    assert.equal(new Set(values(found)).size, 202)
    const ofOneKey = found.filter(each => each.key.toString() === 'k3').map(each => +each.value)
    assert.deepEqual(ofOneKey, [...ofOneKey].sort((left, right) => left - right))
    assert.equal(found.filter(each => String(each.headers.h) === 'x').length, 200)
    await producer.send({ topic: 'a', messages: [{ value: 'later', partition: 1 }] })
    assert.deepEqual(values(await consume('a', 'readers', 1)), ['later'])
  },

  an_idempotent_producer_writes_once: async () => {
    const careful = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
    await careful.connect()
    for (let number = 0; number < 5; number++) {
      await careful.send({ topic: 'b', messages: [{ value: `${number}` }] })
    }
    await careful.disconnect()
    assert.deepEqual(values(await consume('b', 'once', 5)), ['0', '1', '2', '3', '4'])
  },

  what_is_aborted_is_not_read_and_offsets_commit_with_what_is: async () => {
    const writer = transactional('writer')
    await writer.connect()
    const lost = await writer.transaction()
    await lost.send({ topic: 'b', messages: [{ value: 'aborted' }] })
    await lost.abort()
    const kept = await writer.transaction()
    await kept.send({ topic: 'b', messages: [{ value: 'committed' }] })
    const topics = [{ topic: 'a', partitions: [{ partition: 0, offset: '5' }] }]
    await kept.sendOffsets({ consumerGroupId: 'moved', topics })
    await kept.commit()
    await writer.disconnect()

    assert.deepEqual(values(await consume('b', 'decided', 6)).slice(5), ['committed'])
    const [told] = await admin.fetchOffsets({ groupId: 'moved', topics: ['a'] })
    assert.equal(told.partitions.find(each => each.partition === 0).offset, '5')
  },

  a_newer_writer_fences_the_older: async () => {
    const [older, newer] = [transactional('same'), transactional('same')]
    await older.connect()
    const zombie = await older.transaction()
    await zombie.send({ topic: 'b', messages: [{ value: 'zombie' }] })
    await newer.connect()
    const fresh = await newer.transaction()
    await fresh.send({ topic: 'b', messages: [{ value: 'fresh' }] })
    await fresh.commit()

    await assert.rejects(zombie.commit())
    await older.disconnect()
    await newer.disconnect()
  },

  two_members_share_four_partitions: async () => {
    const members = [0, 1].map(() => kafka.consumer({ groupId: 'shared' }))
    const balanced = members.map(
      member =>
        new Promise(resolve =>
          member.on(member.events.GROUP_JOIN, told => {
            if (told.payload.memberAssignment.a?.length === 2) resolve()
          })
        )
    )
    for (const member of members) {
      await member.connect()
      await member.subscribe({ topic: 'a', fromBeginning: true })
      await member.run({ eachMessage: async () => {} })
    }
    await within(Promise.all(balanced), () => 'they do not share')
    await Promise.all(members.map(member => member.disconnect()))
  },

  offsets_are_told_set_and_reset: async () => {
    assert.equal((await admin.fetchTopicOffsets('a')).length, 4)
    assert.equal((await admin.fetchTopicOffsetsByTimestamp('a', Date.now() - 3600000)).length, 4)
    await admin.setOffsets({ groupId: 'readers', topic: 'a', partitions: [{ partition: 0, offset: '1' }] })
    await admin.resetOffsets({ groupId: 'readers', topic: 'a', earliest: true })
  },

  records_are_deleted_from_the_start: async () => {
    const before = (await admin.fetchTopicOffsets('a')).find(each => each.partition === 0)
    await admin.deleteTopicRecords({ topic: 'a', partitions: [{ partition: 0, offset: before.high }] })
    const after = (await admin.fetchTopicOffsets('a')).find(each => each.partition === 0)
    assert.equal(after.low, before.high)
  },

  groups_are_listed_and_deleted: async () => {
    await admin.deleteGroups(['readers'])
    const left = (await admin.listGroups()).groups.map(each => each.groupId)
    assert(left.includes('once') && !left.includes('readers'))
  },

  what_is_refused_leaves_the_connection_alive: async () => {
    await assert.rejects(
      admin.describeAcls({
        resourceType: AclResourceTypes.TOPIC,
        resourcePatternType: ResourcePatternTypes.ANY,
        operation: AclOperationTypes.ANY,
        permissionType: AclPermissionTypes.ANY,
      }),
      { type: 'SECURITY_DISABLED' },
    )
    assert((await admin.listTopics()).includes('a'))
  },

  what_is_being_moved_is_listed: async () => {
    assert.deepEqual((await admin.listPartitionReassignments({})).topics, [])
  },
}

const run = async () => {
  await admin.connect()
  await producer.connect()
  for (const [name, keep] of Object.entries(promises)) {
    try {
      await keep()
      console.log('ok', name)
    } catch (error) {
      console.log('failed', name, error.message)
    }
  }
  await producer.disconnect()
  await admin.disconnect()
}

run()
