import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, unlinkSync, writeFileSync } from 'node:fs';
import type { RequestListener } from 'node:http';
import path from 'node:path';
import ava, { type ExecutionContext } from 'ava';
import { NOTHING } from '../../client/src/command/journal.ts';
import { requireWritableName } from '../../client/src/command/result-names.ts';
import { EarlierBatches, slicesOf, urlBatch } from '../../client/src/command/url-batches.ts';
import { MattingClient } from '../../client/src/index.ts';
import { pngHeader } from '../../control-plane/core/test/support/test-app.ts';
import { type LoopbackSource, openSource } from '../../control-plane/http/test/loopback-source.ts';
import { cutOutOf } from '../../control-plane/nodes/test/scripted-exchange.ts';
import { until } from '../support/processes.ts';
import { isNotTested } from '../support/skip.ts';
import { SmallDisk, skipWithoutMounts } from '../support/small-disk.ts';
import { useRemoveCommand } from './remove-command.ts';

const test = ava.serial;
const TIMEOUT_MS = 120_000;
const command = await useRemoveCommand(test);
const { start, run, write, read, filesBelow, journal, charged } = command;
const ARGS = ['--urls', 'list.txt', '--to', 'out'];
/** The part of a key for a request without options. */
const ASKED = JSON.stringify([['output_format', 'png'], null]);

const pictureAt = (place: string) => Buffer.concat([pngHeader(4, 3), Buffer.from(place)]);

async function open(t: ExecutionContext, first?: RequestListener): Promise<LoopbackSource> {
  const source = await openSource((request, response) => {
    request.resume();
    first?.(request, response);
    if (!response.writableEnded) response.end(pictureAt(`${request.url}`));
  });
  t.teardown(async () => await source[Symbol.asyncDispose]());
  return source;
}

const results = () => filesBelow('out').filter(name => name !== 'results.jsonl');

/** @returns its last lines */
async function listed(urls: readonly string[], code = 0, t?: ExecutionContext) {
  write('list.txt', `${urls.join('\n')}\n`);
  const end = await run(ARGS);
  t?.is(end.code, code, end.stderr);
  return end.stdout.toString();
}

test('a list of addresses is a batch, and the same command again pays for none twice', async t => {
  const source = await open(t, (request, response) => {
    if (request.url === '/gone.png') response.writeHead(404).end();
  });
  const names = ['shelf/red%20shoe.png?size=l', 'gone.png', '..%2F..%2Fetc', ''];
  const lines = names.map(name => `${source.url}/${name}`);
  write('list.txt', `\ufeff# the shelf\n${lines[0]}\r\n\n  ${lines.slice(1).join('\n')}`);
  const first = await run(ARGS);
  t.is(first.code, 1, first.stderr);
  t.regex(first.stdout.toString(), /3 cut out, 1 failed/);
  t.regex(first.stderr, /list\.txt:4: .*gone\.png: IMAGE_DOWNLOAD_FAILED/);
  const made = results();
  t.deepEqual(
    made.map(name => name.replace(/-[0-9a-f]{12}\.png$/, '')),
    ['2F.', 'picture', 'red-20shoe'],
  );
  t.deepEqual(read(`out/${made[2]}`), cutOutOf(pictureAt('/shelf/red%20shoe.png?size=l')));
  const ended = journal().filter(({ output, error }) => output !== null || error !== null);
  t.deepEqual(
    ended.map(({ file, credits, error }) => [file, credits, error?.code]),
    lines.map((line, place) =>
      place === 1 ? [line, 0, 'IMAGE_DOWNLOAD_FAILED'] : [line, 1, undefined],
    ),
  );
  // Existing files stay, removed ones are downloaded again, and 404 is a lasting failure.
  unlinkSync(path.join(command.folder, 'out', made[1]!));
  const asked = source.requests.length;
  const again = await run(ARGS);
  t.is(again.code, 1, again.stderr);
  t.regex(again.stdout.toString(), /1 cut out, 2 already there, 1 failed/);
  t.regex(again.stderr, /gone\.png: IMAGE_DOWNLOAD_FAILED.*1 would fail again/s);
  t.deepEqual(results(), made);
  t.is(source.requests.length, asked);
  t.is(await charged(), 3);
  t.is((await run([...ARGS, '--run', 'two'])).code, 1);
  t.is(await charged(), 6);
});

test('a list that changes is paid for its new addresses alone, each of them once', async t => {
  const source = await open(t);
  const [a, b, c, d] = ['a', 'b', 'c', 'd'].map(name => `${source.url}/${name}.png`);
  t.regex(await listed([a!, b!, c!], 0, t), /3 cut out, 0 failed/);
  t.regex(await listed([d!, a!, b!, c!], 0, t), /1 cut out, 3 already there/);
  t.regex(await listed([c!, b!], 0, t), /0 cut out, 2 already there/);
  t.is(await charged(), 4);
  t.is(results().length, 4);
  t.regex(await listed([a!, `${source.url}/e.png`, `${source.url}/e.png`], 0, t), /1 cut out/);
  t.is(await charged(), 5);
  // Other options or formats are new pictures.
  t.is((await run([...ARGS, '--format', 'webp'])).code, 0);
  t.is(await charged(), 7);
  t.is(results().length, 7);
});

test('an address that failed for the moment is asked again by the same command', async t => {
  let isDown = true;
  const source = await open(t, (request, response) => {
    if (isDown && request.url === '/b.png') response.writeHead(500).end();
  });
  const urls = ['a', 'b'].map(name => `${source.url}/${name}.png`);
  t.regex(await listed(urls, 1, t), /1 cut out, 1 failed/);
  t.regex(await listed(urls, 1, t), /0 cut out, 1 already there, 1 failed/);
  isDown = false;
  t.regex(await listed(urls, 0, t), /1 cut out, 1 already there, 0 failed/);
  t.regex(await listed(urls, 0, t), /0 cut out, 2 already there/);
  t.is(await charged(), 2);
});

/** Submits as an older command did, with its record of `earlier` items. */
async function submitAsBefore(urls: readonly string[], earlier: number): Promise<void> {
  const text = JSON.stringify([ASKED, '', urls]);
  const key = `urls-${createHash('sha256').update(text).digest('hex')}`;
  const client = new MattingClient({ baseUrl: command.url, apiKey: command.caller.token });
  const items = urls.map(image_url => ({ image_url }));
  const batch = await client.submitBatch(
    { items, output_format: 'png' },
    { idempotencyKey: key, giveUpMs: TIMEOUT_MS },
  );
  await client.waitForBatch(batch.batch_id);
  mkdirSync(path.join(command.folder, 'out'), { recursive: true });
  const lines: string[] = [];
  for await (const result of client.batchResults(batch.batch_id)) {
    const { item, job_id: job } = result;
    if (item >= earlier) break;
    const line = { file: urls[item], sha256: null, key: `${key}:${item}`, job, subject: null };
    if (result.status === 'failed') {
      const { code, detail } = result.error;
      const error = { code, detail };
      lines.push(JSON.stringify({ ...line, output: null, size: null, credits: 0, error }));
    } else if (result.status === 'succeeded') {
      const { sizeBytes: bytes, width, height } = result.result;
      const output = `00000${item + 1}-old.png`;
      const file = await client.download(result);
      writeFileSync(path.join(command.folder, 'out', output), file.bytes);
      const size = { bytes, width, height };
      lines.push(JSON.stringify({ ...line, output, size, credits: 1, error: null }));
    }
  }
  writeFileSync(
    path.join(command.folder, 'out/results.jsonl'),
    lines.map(one => `${one}\n`).join(''),
  );
}

test('a list that an older command began goes on, and nothing is paid twice', async t => {
  let isDown = true;
  const source = await open(t, (request, response) => {
    if (isDown && request.url === '/x2.png') response.writeHead(500).end();
  });
  const urlsOf = (letter: string) => [1, 2, 3].map(n => `${source.url}/${letter}${n}.png`);
  // Killed before it wrote a line.
  await submitAsBefore(urlsOf('a'), 0);
  t.regex(await listed(urlsOf('a'), 0, t), /3 cut out/);
  // Killed between two lines, with a duplicate address.
  const twice = [...urlsOf('b'), `${source.url}/b1.png`];
  await submitAsBefore(twice, 2);
  t.regex(await listed(twice, 0, t), /1 cut out, 2 already there, 0 failed, 1 repeated/);
  t.is(await charged(), 7);
  await submitAsBefore([...twice, ...urlsOf('c')], 0);
  t.regex(await listed([...twice, ...urlsOf('c')], 0, t), /6 cut out/);
  t.is(await charged(), 14);
  // Ended, with a line that failed for now; the list has changed since.
  await submitAsBefore(urlsOf('x'), 3);
  isDown = false;
  t.regex(await listed([`${source.url}/new.png`, ...urlsOf('x')], 0, t), /2 cut out, 2 already/);
  t.is(await charged(), 18);
});

test('killed while it waits and begun again with another list, it pays for each address once', async t => {
  const source = await open(t);
  const held = { count: 0, goOn: Promise.withResolvers<void>() };
  command.node.script = async exchange => {
    exchange.admit();
    const input = await exchange.receive();
    held.count += 1;
    await held.goOn.promise;
    exchange.answer(input);
  };
  const urls = [1, 2, 3, 4].map(n => `${source.url}/${n}.png`);
  write('list.txt', urls.join('\n'));
  const killed = start([...ARGS, '--url', command.url]);
  const what = { timeoutMs: TIMEOUT_MS, what: 'the batch is submitted', detail: killed.stderr };
  await until(() => held.count === 4, what);
  killed.child.kill('SIGKILL');
  await killed.ended;
  held.goOn.resolve();
  const changed = [`${source.url}/0.png`, ...urls.slice(1)];
  t.regex(await listed(changed, 0, t), /4 cut out/);
  t.is(await charged(), 5);
  t.is(results().length, 4);
});

test('two commands at once pay for each address once', async t => {
  const source = await open(t);
  write('list.txt', [1, 2, 3].map(n => `${source.url}/${n}.png`).join('\n'));
  const both = [1, 2].map(() => start([...ARGS, '--url', command.url]).ended);
  for (const { code, stderr } of await Promise.all(both)) t.is(code, 0, stderr);
  t.is(await charged(), 3);
  t.is(results().length, 3);
  const place = path.join(command.folder, 'out', 'one.png');
  await t.notThrowsAsync(Promise.all(Array.from({ length: 20 }, () => requireWritableName(place))));
});

test('a list of 2,500 addresses is three batches, whose items are found again in any order', async t => {
  const urls = Array.from({ length: 2500 }, (_, n) => `https://example.com/${n}.png`);
  const request = { fieldsText: ASKED, run: '' };
  const earlier = new EarlierBatches();
  const slices = slicesOf(urls);
  t.deepEqual(
    slices.map(({ length }) => length),
    [1000, 1000, 500],
  );
  for (const slice of slices) {
    const { key } = urlBatch(request, slice);
    const lines = slice.map((file, item) => ({ ...NOTHING, file, key: `${key}:${item}` }));
    // The last item of the second was not recorded: that batch was never submitted.
    for (const line of slice === slices[1] ? lines.slice(0, -1) : lines) earlier.add(line);
  }
  const found = earlier.earlierUrls(request, ['https://example.com/new.png', ...urls.toReversed()]);
  const missing = urls.filter(url => !found.has(url));
  t.deepEqual(missing, slices[1]);
  t.is(new Set([...found.values()].map(({ batch }) => batch.key)).size, 2);
  t.is(earlier.earlierUrls({ ...request, run: 'two' }, urls).size, 0);
});

test('a refused list gives its exit code and its line, and costs nothing', async t => {
  const source = await open(t);
  write('list.txt', `# one\n${source.url}/1.png\n\nhttp://user:secret@127.0.0.1/2.png\n`);
  const good = `${source.url}/1.png`;
  write('good.txt', `${good}\n`);
  const to = ['--to', 'out'];
  const goodArgs = ['--urls', 'good.txt', ...to];
  const cases: [string[], number, RegExp, string?][] = [
    [ARGS, 64, /^matting: list\.txt:4: INVALID_IMAGE_SOURCE: image_url is not usable/m],
    [goodArgs, 77, /INVALID_API_KEY/, 'mk_nobody'],
    [goodArgs, 78, /MATTING_API_KEY is not set/, ''],
    [[...goodArgs, '--model', 'best'], 64, /does not offer the model best/],
    [[...goodArgs, '--background', 'no colour'], 64, /background must be/],
    [[...goodArgs, '--format', 'jpeg'], 64, /UNSUPPORTED_OUTPUT_FORMAT/],
    [[...goodArgs, '--url', 'http://127.0.0.1:1'], 69, /NO_ANSWER/],
  ];
  for (const [text, said] of [
    [`${good}\nphoto.jpg\n`, /list2\.txt:2: photo\.jpg is no http or https address/],
    ['http://\n', /list2\.txt:1: http:\/\/ is no http or https address/],
    ['# none\n', /lists no address/],
  ] as const) {
    write('list2.txt', text);
    const { code, stderr } = await run(['--urls', 'list2.txt', ...to]);
    t.is(code, 64, stderr);
    t.regex(stderr, said);
  }
  for (const [args, code, said, key] of cases) {
    const end = await run(args, key);
    t.is(end.code, code, end.stderr);
    t.regex(end.stderr, said);
    t.notRegex(end.stderr, /unexpected|\n {4}at /);
  }
  t.is((await run(['--urls', 'none.txt', ...to])).code, 66);
  t.is((await run(['--urls', 'good.txt', '--to', 'good.txt'])).code, 73);
  const beside = await run(['a.png', ...ARGS]);
  t.regex(beside.stderr, /name no files beside it/);
  t.regex((await run([...ARGS, '--background-file', 'a.png'])).stderr, /--background-url/);
  const deep = await run([...ARGS, '--recursive']);
  t.deepEqual([deep.code, /takes no --recursive/.test(deep.stderr)], [64, true]);
  t.is(await charged(), 0);
  // Without the line the others continue; without credits they wait.
  command.caller = await command.replicas.createCaller(1);
  const poor = await listed([good, `${source.url}/3.png`], 1, t);
  t.regex(poor, /0 cut out, 0 failed, 2 not finished/);
  await command.replicas.stores.ledger.grant(command.caller.accountId, 1, 'more');
  t.regex(await listed([good, `${source.url}/3.png`], 0, t), /2 cut out/);
  t.is(await charged(), 2);
});

test('a result without a place fails its line alone, before it is paid', async t => {
  const source = await open(t);
  const urls = [1, 2, 3].map(n => `${source.url}/${n}.png`);
  await listed(urls.slice(0, 2), 0, t);
  const [first, second] = results();
  unlinkSync(path.join(command.folder, 'out', first!));
  mkdirSync(path.join(command.folder, 'other', second!), { recursive: true });
  write('list.txt', urls.join('\n'));
  const other = await run(['--urls', 'list.txt', '--to', 'other']);
  t.is(other.code, 1);
  t.regex(other.stderr, /EISDIR: cannot write the result/);
  t.regex(other.stdout.toString(), /2 cut out, 1 failed/);
  t.is(await charged(), 4);
});

test.skipIf(isNotTested(skipWithoutMounts()))(
  'a disk that is full ends nothing that was paid; with room the rest is downloaded',
  async t => {
    const large = Buffer.alloc(30_000);
    const source = await open(t, (request, response) => {
      response.end(Buffer.concat([pictureAt(`${request.url}`), large]));
    });
    const disk = SmallDisk.mount('96k');
    try {
      write('list.txt', [1, 2, 3, 4, 5].map(n => `${source.url}/${n}.png`).join('\n'));
      const args = ['--urls', 'list.txt', '--to', disk.directory];
      const full = await run(args);
      t.is(full.code, 1, full.stderr);
      t.regex(full.stderr, /ENOSPC/);
      t.notRegex(full.stderr, /\n {4}at /);
      t.regex(full.stdout.toString(), /[12] cut out, [34] failed/);
      t.is(await charged(), 5);
      disk.remount('size=4m');
      const roomy = await run(args);
      t.is(roomy.code, 0, roomy.stderr);
      t.is(await charged(), 5);
      t.is(readdirSync(disk.directory).length, 6);
      const lines = readFileSync(path.join(disk.directory, 'results.jsonl'), 'utf8').trim();
      t.notThrows(() => lines.split('\n').map(line => JSON.parse(line)));
    } finally {
      disk.remove();
    }
  },
);
