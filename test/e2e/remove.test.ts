/**
 * `matting remove` killed, interrupted, without credits, on a full disk: what was paid stays paid
 * once.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import path from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { cutOutOf } from '../../control-plane/test/nodes/scripted-exchange.ts';
import { until } from '../support/running-service.ts';
import { picture, RemoveHarness, type Run } from './remove-harness.ts';

const TIMEOUT_MS = 120_000;

let harness: RemoveHarness;

before(async () => {
  harness = await RemoveHarness.open();
});
beforeEach(() => harness.beginTest());
afterEach(() => harness.endTest());
after(() => harness.replicas.close());

test('killed at half of 200 pictures and begun again: 200 results, 200 credits', async () => {
  const pictures = Array.from({ length: 200 }, (_, number) => picture(number));
  for (const [number, bytes] of pictures.entries()) {
    harness.write(`photos/shelf ${number % 7}/${number}.png`, bytes);
  }
  // From the hundredth on no picture ends, so that the kill meets some in every state.
  let answered = 0;
  const goOn = Promise.withResolvers<void>();
  harness.node.script = async exchange => {
    exchange.admit();
    const input = await exchange.receive();
    answered += 1;
    if (answered > 100) await goOn.promise;
    exchange.answer(input);
  };
  const args = ['photos', '--to', 'out', '--recursive', '--concurrency', '8'];
  const killed = harness.start([...args, '--url', harness.url]);
  await until(() => answered > 100 && existsSync(path.join(harness.folder, 'out/results.jsonl')), {
    timeoutMs: TIMEOUT_MS,
    what: 'half are cut out',
    detail: killed.stderr,
  });
  await until(() => harness.journal().length >= 100, {
    timeoutMs: TIMEOUT_MS,
    what: 'half are noted',
  });
  killed.child.kill('SIGKILL');
  await killed.ended;
  goOn.resolve();
  const half = harness.journal().length;
  assert.ok(half >= 100 && half < 200, `${half} lines`);

  const again = await harness.remove(args);
  assert.equal(again.code, 0, again.stderr);
  assert.match(
    again.stdout.toString(),
    new RegExp(`${200 - half} cut out .* ${half} there already`),
  );
  const results = harness.filesBelow('out').filter(name => name !== 'results.jsonl');
  assert.equal(results.length, 200);
  for (const [number, bytes] of pictures.entries()) {
    assert.deepEqual(harness.read(`out/photos/shelf ${number % 7}/${number}.png`), cutOutOf(bytes));
  }
  assert.equal(await harness.charged(), 200);
  const lines = harness.journal();
  assert.equal(lines.length, 200);
  assert.equal(new Set(lines.map(({ job }) => job)).size, 200);
  assert.ok(lines.every(({ credits, error }) => credits === 1 && error === null));
  assert.equal((await harness.remove(args)).code, 0);
  assert.equal(await harness.charged(), 200);
});

test('a journal whose last line is cut is mended', async () => {
  harness.write('a.png', picture(7));
  harness.write('out/results.jsonl', '{"file":"old"}\n{"file":"cut o');
  assert.equal((await harness.remove(['a.png', '--to', 'out'])).code, 0);
  assert.deepEqual(
    harness.journal().map(({ file }) => file),
    ['old', 'a.png'],
  );
});

test('without credits it stops, and goes on when there are some', async () => {
  harness.caller = await harness.replicas.createCaller(2);
  for (let number = 0; number < 5; number += 1)
    harness.write(`photos/${number}.png`, picture(number));
  const args = ['photos', '--to', 'out', '--concurrency', '1'];
  const poor = await harness.remove(args);
  assert.equal(poor.code, 1);
  assert.match(poor.stderr, /the account has 2 credits; up to 5 may be needed/);
  assert.match(poor.stderr, /stopped: INSUFFICIENT_CREDITS/);
  assert.match(poor.stdout.toString(), /2 cut out .* 1 failed, 2 not tried/);
  await harness.replicas.stores.ledger.grant(harness.caller.accountId, 10, 'more');
  const rich = await harness.remove(args);
  assert.equal(rich.code, 0, rich.stderr);
  assert.equal(await harness.charged(), 5);
});

test('a key that is wrong, and a service that is not there, are told at once', async () => {
  harness.write('a.png', picture(8));
  const stranger = await harness.remove(['a.png', '--to', 'out'], { MATTING_API_KEY: 'mk_nobody' });
  assert.equal(stranger.code, 77, stranger.stderr);
  assert.match(stranger.stderr, /INVALID_API_KEY/);
  const keyless = await harness.remove(['a.png', '--to', 'out'], { MATTING_API_KEY: '' });
  assert.equal(keyless.code, 78, keyless.stderr);
  harness.write('key', `${harness.caller.token}\n`);
  const args = ['a.png', '--to', 'out', '--key-file', 'key'];
  const byFile = await harness.remove(args, { MATTING_API_KEY: '' });
  assert.equal(byFile.code, 0, byFile.stderr);
});

test('an interrupt finishes what is under way; a second one ends it', async () => {
  for (let number = 0; number < 20; number += 1)
    harness.write(`photos/${number}.png`, picture(number));
  let held = 0;
  let goOn = Promise.withResolvers<void>();
  harness.node.script = async exchange => {
    exchange.admit();
    const input = await exchange.receive();
    held += 1;
    await goOn.promise;
    exchange.answer(input);
  };
  const args = ['photos', '--to', 'out', '--concurrency', '4', '--url', harness.url];
  const heldBy = (count: number, run: Run) =>
    until(() => held >= count, { timeoutMs: TIMEOUT_MS, what: 'held', detail: run.stderr });
  const once = harness.start(args);
  await heldBy(4, once);
  once.child.kill('SIGINT');
  const said = () => once.stderr().includes('pictures under way are finished');
  await until(said, { timeoutMs: TIMEOUT_MS, what: 'the interrupt is met', detail: once.stderr });
  goOn.resolve();
  const { code, stdout } = await once.ended;
  assert.equal(code, 130);
  assert.match(stdout.toString(), /4 cut out .* 16 not tried/);
  assert.equal(harness.filesBelow('out').length, 5);

  goOn = Promise.withResolvers<void>();
  held = 0;
  const twice = harness.start(args);
  await heldBy(4, twice);
  const interrupted = setInterval(() => twice.child.kill('SIGINT'), 1100);
  const { code: hurried } = await twice.ended;
  clearInterval(interrupted);
  assert.equal(hurried, 130);
  assert.equal(harness.filesBelow('out').length, 5, 'nothing is left half written');
  goOn.resolve();
  const last = await harness.remove(['photos', '--to', 'out']);
  assert.equal(last.code, 0, last.stderr);
  assert.equal(await harness.charged(), 20);
});

test('a disk that is full stops the run; with room it goes on and pays nothing twice', async context => {
  const disk = path.join(harness.folder, 'disk');
  mkdirSync(disk);
  try {
    const options = ['-t', 'tmpfs', '-o', 'size=96k,mode=0700', 'tmpfs', disk];
    execFileSync('mount', options, { stdio: 'pipe' });
  } catch (error) {
    return context.skip(`no small disk could be mounted: ${(error as Error).message.trim()}`);
  }
  try {
    const large = (number: number) => Buffer.concat([picture(number), Buffer.alloc(30_000)]);
    for (let number = 0; number < 8; number += 1)
      harness.write(`photos/${number}.png`, large(number));
    const args = ['photos', '--to', 'disk', '--concurrency', '1'];
    const full = await harness.remove(args);
    assert.equal(full.code, 1);
    assert.match(full.stderr, /stopped: .*no space left/i);
    assert.ok(!harness.filesBelow('disk').some(name => name.endsWith('.part')));
    execFileSync('mount', ['-o', 'remount,size=4m', disk]);
    const roomy = await harness.remove(args);
    assert.equal(roomy.code, 0, roomy.stderr);
    assert.equal(await harness.charged(), 8);
    assert.deepEqual(harness.read('disk/photos/7.png'), cutOutOf(large(7)));
  } finally {
    execFileSync('umount', [disk]);
  }
});
