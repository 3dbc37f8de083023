// What the cases share: producers and consumers that end with their case, messages, expectations.
'use strict';

const assert = require('node:assert/strict');
const { setTimeout: sleep } = require('node:timers/promises');

const { Consumer, Message, Producer } = require('ali-ons');

const RECEIVE_TIMEOUT_MS = 30_000;
// How long a message that must not come is waited for.
const QUIET_MS = 500;

const SILENT = { debug() {}, info() {}, warn() {}, error() {} };

let names = 0;

class Session {
  constructor(nameserver) {
    this.nameserver = nameserver;
    this.errors = [];
    this._closers = [];
  }

  async close() {
    for (const closer of this._closers.reverse()) {
      await closer();
    }
  }

  _options(options) {
    return {
      nameSrv: [ this.nameserver ],
      // It is asked for, and used only to look nameservers up.
      httpclient: {},
      logger: SILENT,
      // Clients of one name share connections.
      instanceName: `node-${process.pid}-${names++}`,
      // Not half a minute until a topic or another consumer is noticed.
      pollNameServerInteval: 500,
      rebalanceInterval: 500,
      ...options,
    };
  }

  _closeLater(client, close) {
    client.on('error', error => this.errors.push(error.message));
    let closed;
    client.closeOnce = () => (closed ??= close());
    this._closers.push(() => client.closeOnce());
  }

  async producer(options) {
    const producer = new Producer(this._options({ producerGroup: 'node-producers', ...options }));
    this._closeLater(producer, () => producer.close());
    await producer.ready();
    return producer;
  }

  // Returns an inbox that fills. `decide` says what becomes of a message.
  async subscribe({ topic, group = `node-group-${names++}`, expression = '*', decide, ...options }) {
    const consumer = new Consumer(this._options({
      consumerGroup: group,
      consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
      ...options,
    }));
    const inbox = new Inbox(consumer);
    this._closeLater(consumer, () => consumer.close());
    consumer.subscribe(topic, expression, async message => {
      inbox.messages.push(snapshot(message));
      return decide ? decide(message) : undefined;
    });
    await consumer.ready();
    return inbox;
  }

  // Returns the messages of a topic, each queue in its order.
  async readAll(topic, count) {
    const inbox = await this.subscribe({ topic });
    const messages = await inbox.waitExactly(count);
    return messages.sort((a, b) => a.queueId - b.queueId || a.queueOffset - b.queueOffset);
  }
}

class Inbox {
  constructor(consumer) {
    this.consumer = consumer;
    this.messages = [];
  }

  async wait(count) {
    await within(`${count} messages`, () => this.messages.length >= count,
      () => `${this.messages.length} came`);
    return [ ...this.messages ];
  }

  // Also sees to it that there are no more of them.
  async waitExactly(count) {
    await this.wait(count);
    await sleep(QUIET_MS);
    return [ ...this.messages ];
  }

  async close() {
    await this.consumer.closeOnce();
  }
}

// The library changes messages after it has handed them out.
function snapshot(message) {
  return {
    topic: message.topic,
    body: Buffer.from(message.body),
    tags: message.tags,
    keys: message.keys,
    properties: { ...message.properties },
    queueId: message.queueId,
    queueOffset: Number(message.queueOffset),
    sysFlag: message.sysFlag,
    reconsumeTimes: message.reconsumeTimes,
    msgId: message.msgId,
    receivedMs: Date.now(),
    storeMs: Number(message.storeTimestamp),
  };
}

// An outgoing message: topic, body, and if there are any tags, keys, properties.
function toMessage(outgoing) {
  const message = new Message(outgoing.topic, outgoing.tags ?? '', Buffer.from(outgoing.body));
  if (outgoing.keys) {
    message.keys = outgoing.keys;
  }
  Object.assign(message.properties, outgoing.properties);
  if (outgoing.delayLevel) {
    message.delayTimeLevel = outgoing.delayLevel;
  }
  if (outgoing.shardingKey) {
    message.shardingKey = outgoing.shardingKey;
  }
  return message;
}

// Returns messages that can be told apart.
function numbered(topic, count) {
  return Array.from({ length: count }, (_, number) => ({
    topic,
    body: `${topic} ${String(number).padStart(4, '0')}`,
    tags: 'TagA',
    keys: [ `${topic}-${number}`, 'every' ],
    properties: { number: String(number), text: 'f\u00fcr \u{1f600}' },
  }));
}

async function sendAll(producer, outgoing) {
  const results = [];
  for (const one of outgoing) {
    const result = await producer.send(toMessage(one));
    assert.equal(result.sendStatus, 'SEND_OK');
    results.push(result);
  }
  return results;
}

// Every message has come, once, as it was sent; in any order.
function expectOnce(received, sent) {
  const byBody = (a, b) => (String(a.body) < String(b.body) ? -1 : 1);
  expectInOrder([ ...received ].sort(byBody), [ ...sent ].sort(byBody));
}

// Every message has come, once, as it was sent and in that order.
function expectInOrder(received, sent) {
  expectEqual('bodies', received.map(one => summary(one.body)), sent.map(one => summary(one.body)));
  received.forEach((message, i) => expectSame(message, sent[i]));
}

function expectSame(message, sent) {
  expectEqual('topic', message.topic, sent.topic);
  if (!message.body.equals(Buffer.from(sent.body))) {
    throw new Error(`body of ${message.body.length} bytes differs from the ${sent.body.length} sent`);
  }
  expectEqual('tags', message.tags || '', sent.tags ?? '');
  expectEqual('keys', message.keys ?? '', (sent.keys ?? []).join(' '));
  for (const [ name, value ] of Object.entries(sent.properties ?? {})) {
    expectEqual(`property ${name}`, message.properties[name], value);
  }
}

function expectEqual(what, got, wanted) {
  assert.deepEqual(got, wanted,
    `${what}: expected ${JSON.stringify(wanted)}, got ${JSON.stringify(got)}`);
}

function summary(body) {
  const text = String(body);
  return text.length > 60 ? `${text.slice(0, 40)}... (${text.length} characters)` : text;
}

// Asks until it is so.
async function within(what, condition, found = () => 'it was not so') {
  const deadline = Date.now() + RECEIVE_TIMEOUT_MS;
  while (!await condition()) {
    if (Date.now() > deadline) {
      throw new Error(`expected ${what} within ${RECEIVE_TIMEOUT_MS} ms, ${found()}`);
    }
    await sleep(50);
  }
}

module.exports = {
  QUIET_MS,
  Session,
  expectEqual,
  expectInOrder,
  expectOnce,
  expectSame,
  numbered,
  sendAll,
  sleep,
  toMessage,
  within,
};
