// Producers.
'use strict';

const {
  expectEqual, expectInOrder, expectOnce, expectSame, numbered, sendAll, toMessage,
} = require('./session');

const COMPRESSED_FLAG = 1;
const DELAY_LEVEL_1_MS = 1000;
// How late a delayed message may be: the broker looks for due ones in intervals.
const DELAY_TOLERANCE_MS = 2000;

const sendingCases = [
  {
    part: 'send',
    name: 'with tag, keys and properties',
    topics: { NodeSend: 4 },
    async run(session) {
      const sent = numbered('NodeSend', 20);
      const results = await sendAll(await session.producer(), sent);
      const received = await session.readAll('NodeSend', sent.length);
      expectOnce(received, sent);
      results.forEach((result, i) => {
        const message = received.find(one => one.msgId === result.msgId);
        expectEqual('a message with the id of the answer', message !== undefined, true);
        expectSame(message, sent[i]);
        expectEqual('queue', message.queueId, Number(result.messageQueue.queueId));
        expectEqual('offset', message.queueOffset, result.queueOffset);
      });
    },
  },
  {
    part: 'send',
    name: '50 at once',
    topics: { NodeAtOnce: 4 },
    async run(session) {
      const sent = numbered('NodeAtOnce', 50);
      const producer = await session.producer();
      await Promise.all(sent.map(one => sendAll(producer, [ one ])));
      expectOnce(await session.readAll('NodeAtOnce', sent.length), sent);
    },
  },
  {
    part: 'send',
    name: 'ordered, by sharding key',
    topics: { NodeSharded: 4 },
    async run(session) {
      const sent = numbered('NodeSharded', 40);
      sent.forEach((one, i) => {
        one.shardingKey = `order-${i % 8}`;
        one.properties.order = one.shardingKey;
      });
      await sendAll(await session.producer(), sent);
      const received = await session.readAll('NodeSharded', sent.length);
      for (let key = 0; key < 8; key++) {
        const order = `order-${key}`;
        const mine = received.filter(one => one.properties.order === order);
        expectEqual(`queues of ${order}`, new Set(mine.map(one => one.queueId)).size, 1);
        expectInOrder(mine, sent.filter(one => one.shardingKey === order));
      }
    },
  },
  {
    part: 'send',
    name: 'compressed body (64 KiB)',
    topics: { NodeCompressed: 1 },
    async run(session) {
      const sent = [{ topic: 'NodeCompressed', body: 'the same again, '.repeat(4096) }];
      await sendAll(await session.producer(), sent);
      const received = await session.readAll('NodeCompressed', 1);
      expectOnce(received, sent);
      expectEqual('compressed flag', received[0].sysFlag & COMPRESSED_FLAG, COMPRESSED_FLAG);
    },
  },
  {
    part: 'send',
    name: 'delayed by level 1',
    topics: { NodeDelayed: 1 },
    async run(session) {
      const inbox = await session.subscribe({ topic: 'NodeDelayed' });
      const producer = await session.producer();
      const sent = numbered('NodeDelayed', 3).map(one => ({ ...one, delayLevel: 1 }));
      const started = Date.now();
      for (const one of sent) {
        const result = await producer.send(toMessage(one));
        expectEqual('status', result.sendStatus, 'SEND_OK');
      }
      const finished = Date.now();
      const received = await inbox.waitExactly(sent.length);
      expectOnce(received, sent);
      for (const { receivedMs } of received) {
        if (receivedMs < started + DELAY_LEVEL_1_MS) {
          throw new Error(`a message came after ${receivedMs - started} ms`);
        }
        if (receivedMs > finished + DELAY_LEVEL_1_MS + DELAY_TOLERANCE_MS) {
          throw new Error(`a message came only after ${receivedMs - finished} ms`);
        }
      }
    },
  },
];

module.exports = { sendingCases };
