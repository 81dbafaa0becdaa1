import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, it } from 'node:test';
import { CHUNK_BYTES_MAX } from '#contract/limits.ts';
import { openTestNode, type TestNode } from './test-node.ts';

const ROOT = path.resolve(import.meta.dirname, '../../..');
const TOKEN = 'a-token-of-sixteen-or-more';

let node: TestNode;
let directory: string;

beforeEach(async () => {
  node = await openTestNode({ token: TOKEN });
  directory = await mkdtemp(path.join(tmpdir(), 'matting-docs-'));
});

afterEach(async () => {
  await node.close();
  await rm(directory, { recursive: true });
});

/** Runs the example of docs/grpc.md as it stands there. */
async function runExample(input: string, output: string, token: string) {
  const text = await readFile(path.join(ROOT, 'docs/grpc.md'), 'utf8');
  const code = /```ts\n(.*?)```/s.exec(text)?.[1];
  assert.ok(code, 'docs/grpc.md has an example');
  const child = spawn(process.execPath, ['--input-type=module-typescript', '-', input, output], {
    cwd: ROOT,
    env: { PATH: process.env.PATH, NODE_ADDRESS: node.address, MATTING_NODE_TOKEN: token },
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

it('the example of the documentation cuts a file out', async () => {
  const input = path.join(directory, 'photo.jpg');
  const output = path.join(directory, 'cutout.png');
  const photo = Buffer.alloc(3 * CHUNK_BYTES_MAX + 5, 3);
  await writeFile(input, photo);
  node.pictures.result = Buffer.alloc(CHUNK_BYTES_MAX + 7, 9);
  const { exitCode, stderr } = await runExample(input, output, TOKEN);
  assert.equal(exitCode, 0, stderr);
  assert.ok((await readFile(output)).equals(node.pictures.result));
  assert.ok(node.pictures.decoded[0].file.equals(photo));
  assert.match(stderr, /STAGE_INFERRING/);
});

it('the example of the documentation tells the code of an error', async () => {
  const input = path.join(directory, 'photo.jpg');
  await writeFile(input, 'a photo');
  const { exitCode, stderr } = await runExample(
    input,
    path.join(directory, 'x'),
    'another-token-1',
  );
  assert.equal(exitCode, 1);
  assert.match(stderr, /^INVALID_NODE_TOKEN: /m);
});
