import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { createServer, type RequestListener } from 'node:http';
import path from 'node:path';
import {
  OPENVINO_FILES,
  OPENVINO_WHEEL,
  openvinoFolder,
  openvinoRefusal,
  readOpenvino,
} from '@matting/serving/providers/provider-files.ts';
import { drip } from '@matting/test-support/dripping.ts';
import { isNotTested } from '@matting/test-support/skip.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava, { type ExecutionContext } from 'ava';
import { listen } from '../test/fake-registry.ts';
import { installOpenvino } from './install-openvino.ts';

const test = isNotTested(openvinoRefusal() ?? false) ? ava.skip : ava;
const { signal } = new AbortController();

async function openIndex(t: ExecutionContext, answer: RequestListener): Promise<string> {
  return `http://127.0.0.1:${await listen(t, createServer(answer))}/simple/`;
}

/** The wheel's name, but other bytes. */
function listing(wheel: Buffer): RequestListener {
  return ({ url }, response) => {
    if (url === '/simple/openvino/') {
      const files = [{ filename: OPENVINO_WHEEL.name, url: '../../wheels/it.whl' }];
      response.end(JSON.stringify({ files }));
    } else if (url === '/wheels/it.whl') response.end(wheel);
    else response.writeHead(404).end();
  };
}

const list = (bytes: number) => '{"files": []}'.padEnd(bytes);

const wrong: readonly (readonly [string, RequestListener, RegExp])[] = [
  ['other bytes', listing(Buffer.alloc(OPENVINO_WHEEL.bytes)), /its checksum is another/],
  ['half of it', listing(Buffer.alloc(100)), /its checksum is another/],
  ['more than it', listing(Buffer.alloc(OPENVINO_WHEEL.bytes + 1)), /too long.*use --from/],
  ['no such file', (_, response) => response.end('{"files": []}'), /does not list it.*--from/],
  ['4 MiB of nothing', (_, response) => response.end(list(4_194_304)), /does not list it/],
  ['over 4 MiB', (_, response) => response.end(list(4_194_305)), /1:\d+: .* over 4194304 bytes/],
  ['tiny pieces', (_, response) => drip(response), /more pieces.*--from/],
  ['no JSON', (_, response) => response.end('<html>'), /JSON.*--from/],
  ['an error', (_, response) => response.writeHead(503).end(), /HTTP 503.*--from/],
];
for (const [name, answer, message] of wrong) {
  test(`an index that gives ${name} installs nothing, and what was there stays`, async t => {
    const providerDir = await temporaryFolder(t);
    const folder = openvinoFolder(providerDir);
    await mkdir(folder);
    await writeFile(path.join(folder, 'before'), '');
    const env = { PIP_INDEX_URL: await openIndex(t, answer) };
    const failed = installOpenvino({ providerDir, env, signal });
    await t.throwsAsync(failed, { name: 'ProviderError', message });
    t.deepEqual(await readdir(providerDir), [path.basename(folder)]);
    t.deepEqual(await readdir(folder), ['before']);
  });
}

test('a file that is no such wheel is refused by its name', async t => {
  const providerDir = await temporaryFolder(t);
  const from = path.join(providerDir, 'another.whl');
  await writeFile(from, 'PK');
  const failed = installOpenvino({ providerDir, from, env: {}, signal });
  await t.throwsAsync(failed, { name: 'ProviderError', message: /another\.whl is not openvino-/ });
});

test('an interruption ends the download', async t => {
  const providerDir = await temporaryFolder(t);
  const interrupted = new AbortController();
  const env = { PIP_INDEX_URL: await openIndex(t, () => interrupted.abort(new Error('Ctrl-C'))) };
  const failed = installOpenvino({ providerDir, env, signal: interrupted.signal });
  await t.throwsAsync(failed, { message: 'Ctrl-C' });
});

test('a folder without a whole library is not used', async t => {
  const providerDir = await temporaryFolder(t);
  t.like(await readOpenvino(providerDir, { hashed: false }), { state: 'missing' });
  const folder = openvinoFolder(providerDir);
  await mkdir(folder);
  for (const { name } of OPENVINO_FILES.values()) await writeFile(path.join(folder, name), 'half');
  const found = await readOpenvino(providerDir, { hashed: false });
  t.like(found, { state: 'unusable' });
  t.regex(found.state === 'unusable' ? found.reason : '', /lacks a part of lib/);
});
