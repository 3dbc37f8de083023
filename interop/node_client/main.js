// The Node client ali-ons 3.12.0 against a nameserver and a broker.
//
//   node main.js topics                    print the topics that the cases need
//   node main.js run NAMESERVER BROKER     run the cases, one line of JSON for each
//
// What the lines are is written in interop/support/case_lines.py.
'use strict';

const { consumingCases } = require('./consuming');
const { sendingCases } = require('./sending');
const { Session } = require('./session');

const CASE_TIMEOUT_MS = 60_000;

// A case has a part, a name, topics with their numbers of queues, and an async function to run.
const CASES = [...sendingCases, ...consumingCases];

async function main(command, nameserver) {
  if (command === 'topics') {
    printLine(Object.assign({}, ...CASES.map(one => one.topics)));
  } else if (command === 'run' && nameserver) {
    await runAll(nameserver);
  } else {
    console.error('usage: node main.js topics | node main.js run NAMESERVER BROKER');
    process.exitCode = 2;
  }
}

async function runAll(nameserver) {
  for (const one of CASES) {
    const started = Date.now();
    const session = new Session(nameserver);
    let failure = '';
    try {
      await withTimeout(one.run(session));
    } catch (error) {
      failure = [error.message, ...session.errors].join('; ');
    }
    // A client that cannot say goodbye is no failure of the case.
    await withTimeout(session.close()).catch(error => console.error(error));
    printLine({ part: one.part, case: one.name, ms: Date.now() - started, failure });
  }
  printLine({ end: true });
  // The library leaves timers and sockets behind.
  process.exit(0);
}

async function withTimeout(promise) {
  let timer;
  const limit = new Promise((_, reject) => {
    const reason = new Error(`still running after ${CASE_TIMEOUT_MS} ms`);
    timer = setTimeout(() => reject(reason), CASE_TIMEOUT_MS);
  });
  try {
    return await Promise.race([promise, limit]);
  } finally {
    clearTimeout(timer);
  }
}

function printLine(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

// The library rejects promises that nobody holds; what matters of it shows in the cases.
process.on('unhandledRejection', error => console.error(error));

main(...process.argv.slice(2));
