import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import ava from 'ava';
import { CHUNK_BYTES_MAX } from '#contract/limits.ts';
import { TlsFiles } from '#program/tls/tls-files.ts';
import { TestAuthority } from '../../../test/support/certificates.ts';
import { temporaryFolder } from '../../../test/support/temporary-folder.ts';
import { openTestNode, type TestNode } from './test-node.ts';

const test = ava.serial;

/** The folders of all tests. */
const ROOM = await temporaryFolder({ teardown: test.after.always });

const ROOT = path.resolve(import.meta.dirname, '../../..');
const TOKEN = 'a-token-of-sixteen-or-more';

let node: TestNode;
let directory: string;

test.beforeEach(async () => {
  node = await openTestNode({ token: TOKEN });
  directory = await mkdtemp(path.join(ROOM, 'example-'));
});

test.afterEach.always(async () => {
  await node.close();
});

/** Runs the example of docs/grpc.md as it stands there. */
async function runExample(input: string, output: string, env: Readonly<Record<string, string>>) {
  const text = await readFile(path.join(ROOT, 'docs/grpc.md'), 'utf8');
  const code = /```ts\n(.*?)```/s.exec(text)?.[1];
  assert.ok(code, 'docs/grpc.md has an example');
  const child = spawn(process.execPath, ['--input-type=module-typescript', '-', input, output], {
    cwd: ROOT,
    env: { PATH: process.env.PATH, NODE_ADDRESS: node.address, ...env },
    stdio: ['pipe', 'inherit', 'pipe'],
  });
  child.stdin.end(code);
  let stderr = '';
  child.stderr.on('data', data => {
    stderr += data;
  });
  const exitCode = await new Promise(resolve => child.once('close', resolve));
  return { exitCode, stderr };
}

test('the example of the documentation cuts a file out', async t => {
  const input = path.join(directory, 'photo.jpg');
  const output = path.join(directory, 'cutout.png');
  const photo = Buffer.alloc(3 * CHUNK_BYTES_MAX + 5, 3);
  await writeFile(input, photo);
  node.pictures.result = Buffer.alloc(CHUNK_BYTES_MAX + 7, 9);
  const { exitCode, stderr } = await runExample(input, output, { MATTING_NODE_TOKEN: TOKEN });
  t.is(exitCode, 0, stderr);
  t.true((await readFile(output)).equals(node.pictures.result));
  t.truthy(node.pictures.decoded[0]?.file.equals(photo));
  t.regex(stderr, /STAGE_INFERRING/);
});

test('the example of the documentation tells the code of an error', async t => {
  const input = path.join(directory, 'photo.jpg');
  await writeFile(input, 'a photo');
  const { exitCode, stderr } = await runExample(input, path.join(directory, 'x'), {
    MATTING_NODE_TOKEN: 'another-token-1',
  });
  t.is(exitCode, 1);
  t.regex(stderr, /^INVALID_NODE_TOKEN: /m);
});

test('the example of the documentation shows a certificate where there is no token', async t => {
  const authority = new TestAuthority();
  const at = (name: string) => path.join(directory, name);
  for (const name of ['node', 'shop']) {
    const { cert, key } = authority.issue(name);
    await writeFile(at(`${name}.pem`), cert);
    await writeFile(at(`${name}.key`), key);
  }
  await writeFile(at('ca.pem'), authority.cert);
  const files = await TlsFiles.open(
    {
      identity: { certFile: at('node.pem'), keyFile: at('node.key') },
      clientCaFile: at('ca.pem'),
      serverCaFile: undefined,
      serverName: undefined,
    },
    { log: { info: () => undefined, warn: () => undefined } },
  );
  await node.close();
  node = await openTestNode({
    token: TOKEN,
    credentials: files.serverCredentials(),
    callers: { certificatesChecked: true },
  });
  await writeFile(at('photo.jpg'), 'a photo');
  const { exitCode, stderr } = await runExample(at('photo.jpg'), at('cutout.png'), {
    CA_FILE: at('ca.pem'),
    CERT_FILE: at('shop.pem'),
    KEY_FILE: at('shop.key'),
  });
  files.close();
  t.is(exitCode, 0, stderr);
  t.true((await readFile(at('cutout.png'))).equals(node.pictures.result));
});
