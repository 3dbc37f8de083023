// Push consumers.
'use strict';

const { Consumer } = require('ali-ons');

const {
  QUIET_MS, expectEqual, expectOnce, expectSame, numbered, sendAll, sleep, within,
} = require('./session');

// A pull that is held is answered at once when a message comes, not at the end of its time.
const WAKES_WITHIN_MS = 1000;

const consumingCases = [
  {
    part: 'push',
    name: 'clustering, what was there and what comes',
    topics: { NodePush: 4 },
    async run(session) {
      const sent = numbered('NodePush', 40);
      const producer = await session.producer();
      await sendAll(producer, sent.slice(0, 20));
      const inbox = await session.subscribe({ topic: 'NodePush' });
      await inbox.wait(20);
      await sendAll(producer, sent.slice(20));
      expectOnce(await inbox.waitExactly(40), sent);
      for (const message of inbox.messages.slice(20)) {
        const waitedMs = message.receivedMs - message.storeMs;
        if (waitedMs > WAKES_WITHIN_MS) {
          throw new Error(`a message came ${waitedMs} ms after it was stored`);
        }
      }
    },
  },
  {
    part: 'push',
    name: 'the group goes on where it has stopped',
    topics: { NodeAgain: 4 },
    async run(session) {
      const sent = numbered('NodeAgain', 25);
      const producer = await session.producer();
      await sendAll(producer, sent.slice(0, 20));
      const first = await session.subscribe({ topic: 'NodeAgain', group: 'node-again' });
      expectOnce(await first.waitExactly(20), sent.slice(0, 20));
      await first.close();
      // The offsets are sent without waiting for an answer.
      await sleep(QUIET_MS);
      await sendAll(producer, sent.slice(20));
      const second = await session.subscribe({ topic: 'NodeAgain', group: 'node-again' });
      expectOnce(await second.waitExactly(5), sent.slice(20));
    },
  },
  {
    part: 'push',
    name: 'tags A || B',
    topics: { NodeTags: 4 },
    async run(session) {
      const sent = numbered('NodeTags', 40);
      sent.forEach((one, i) => {
        one.tags = [ 'TagA', 'TagB', 'TagC', '' ][i % 4];
      });
      await sendAll(await session.producer(), sent);
      const inbox = await session.subscribe({ topic: 'NodeTags', expression: 'TagA || TagB' });
      const wanted = sent.filter(one => [ 'TagA', 'TagB' ].includes(one.tags));
      expectOnce(await inbox.waitExactly(wanted.length), wanted);
    },
  },
  {
    part: 'push',
    name: 'SQL92 condition on properties',
    topics: { NodeSql: 4 },
    async run(session) {
      const sent = numbered('NodeSql', 40);
      sent.forEach((one, i) => {
        one.properties.kind = [ 'small', 'large' ][i % 2];
      });
      await sendAll(await session.producer(), sent);
      const inbox = await session.subscribe({
        topic: 'NodeSql',
        expression: {
          expressionType: 'SQL92',
          subString: "number BETWEEN 10 AND 30 AND kind = 'large'",
        },
      });
      const wanted = sent.filter((_, i) => i >= 10 && i <= 30 && i % 2 === 1);
      expectOnce(await inbox.waitExactly(wanted.length), wanted);
    },
  },
  {
    part: 'push',
    name: 'broadcasting, each gets everything',
    topics: { NodeBroadcast: 4 },
    async run(session) {
      const options = { topic: 'NodeBroadcast', group: 'node-broadcast', isBroadcast: true };
      const first = await session.subscribe(options);
      const second = await session.subscribe(options);
      const sent = numbered('NodeBroadcast', 20);
      await sendAll(await session.producer(), sent);
      expectOnce(await first.waitExactly(20), sent);
      expectOnce(await second.waitExactly(20), sent);
    },
  },
  {
    part: 'push',
    name: 'two consumers share the queues, the second one leaves',
    topics: { NodeShared: 4 },
    async run(session) {
      const producer = await session.producer();
      let total = 0;
      const send = async count => {
        await sendAll(producer, numbered('NodeShared', count));
        total += count;
      };
      const first = await session.subscribe({ topic: 'NodeShared', group: 'node-shared' });
      await send(8);
      await first.wait(8);
      const second = await session.subscribe({ topic: 'NodeShared', group: 'node-shared' });
      await within('messages for the second consumer', async () => {
        await send(8);
        return second.messages.length >= 8;
      });
      await second.close();
      await send(40);
      // What the second one had not confirmed comes again; nothing is lost.
      await within('every message at one of the two', () => {
        const received = [ ...first.messages, ...second.messages ];
        const seen = new Set(received.map(one => `${one.queueId}/${one.queueOffset}`));
        return seen.size === total;
      });
    },
  },
  {
    part: 'retry',
    name: 'a message that fails comes again',
    topics: { NodeRetry: 1 },
    async run(session) {
      const sent = numbered('NodeRetry', 5);
      await sendAll(await session.producer(), sent);
      const inbox = await session.subscribe({
        topic: 'NodeRetry',
        decide: message => {
          if (message.properties.number === '3' && message.reconsumeTimes === 0) {
            return Consumer.ACTION_RETRY;
          }
          // The library does not look at what is returned for a message that has come again.
          if (message.properties.number === '3' && message.reconsumeTimes === 1) {
            throw new Error('not yet');
          }
          return undefined;
        },
      });
      const failed = (await inbox.waitExactly(7)).filter(one => one.properties.number === '3');
      failed.forEach(one => expectSame(one, sent[3]));
      expectEqual('times of the one that failed', failed.map(one => one.reconsumeTimes), [ 0, 1, 2 ]);
    },
  },
];

module.exports = { consumingCases };
