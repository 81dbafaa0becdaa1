/**
 * The pages' commands as printed, with a newcomer's address and key: a clone, a start, first calls,
 * the client, a webhook, an agent. Needs: mcp, portal.
 */
import assert from 'node:assert/strict';
import { type ChildProcess, execFile, execFileSync, spawn } from 'node:child_process';
import * as fs from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import ava, { type ExecutionContext } from 'ava';
import sharp from 'sharp';
import { Agent } from '../../control-plane/mcp/test/mcp-client.ts';
import { isolatedEnv, ROOT, requireNothingLeft } from '../running-service.ts';
import { until } from '../support/processes.ts';
import { isNotTested } from '../support/skip.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const isRepository = fs.existsSync(path.join(ROOT, '.git'));
const test = ava.serial.skipIf(isNotTested(!isRepository && 'a clone: this is no repository'));

const run = promisify(execFile);
const COMMAND_MS_MAX = 120_000;
const START_MS_MAX = 240_000;

/** Outside the project, where npm would find its packages. */
const DESK = await temporaryFolder({ teardown: ava.after.always });
/** Inside the project, to use its linked packages. */
const HOME = path.join(ROOT, 'data/newcomer');
const CLONE = path.join(HOME, 'matting');

let service: { readonly baseUrl: string; readonly apiKey: string };
let make: ChildProcess;
let output = '';

const git = (...args: readonly string[]) => execFileSync('git', args, { encoding: 'utf8' });
const read = (page: string) => fs.readFileSync(path.join(CLONE, page), 'utf8');

/** Links this commit's packages, which npm would otherwise download. */
function clone(): void {
  fs.rmSync(HOME, { recursive: true, force: true });
  git('clone', '-q', '--no-hardlinks', ROOT, CLONE);
  for (const manifest of git('-C', ROOT, 'ls-files', '*package.json').trim().split('\n')) {
    const packages = path.join(path.dirname(manifest), 'node_modules');
    if (!fs.existsSync(path.join(ROOT, packages))) continue;
    execFileSync('cp', ['-al', path.join(ROOT, packages), path.join(CLONE, packages)]);
    const stamp = path.join(CLONE, packages, '.installed');
    fs.rmSync(stamp, { force: true });
    fs.writeFileSync(stamp, '');
  }
}

/** Finds a code block by a text in it. */
function blockOf(page: string, text: string): string {
  const fenced = [...read(page).matchAll(/^```\w*\n([\s\S]*?)^```$/gm)].map(([, block]) => block);
  const indented = [...read(page).matchAll(/(?:^ {4}.*\n)+/gm)].map(([block]) => block);
  const found = [...fenced, ...indented].find(block => block?.includes(text));
  assert.ok(found, `${page} has no block with ${text}`);
  return found;
}

/** Replaces the pages' example address and key. */
function filled(command: string): string {
  return command
    .replaceAll(/http:\/\/127\.0\.0\.1:8080|https:\/\/matting\.example\.com/g, service.baseUrl)
    .replaceAll(/\bmk_\.\.\./g, service.apiKey);
}

const envOf = (more: Record<string, string> = {}) => ({
  ...process.env,
  PATH: `${path.dirname(process.execPath)}:${process.env.PATH}`,
  npm_config_audit: 'false',
  npm_config_fund: 'false',
  MATTING_API_KEY: service.apiKey,
  BASE: service.baseUrl,
  ...more,
});

async function shell(command: string, more?: Record<string, string>): Promise<string> {
  const options = { cwd: DESK, env: envOf(more), timeout: COMMAND_MS_MAX };
  return (await run('sh', ['-ec', filled(command)], options)).stdout;
}

async function isCutOut(t: ExecutionContext, name: string, format: string): Promise<void> {
  const file = path.join(DESK, name);
  const found = await sharp(file).metadata();
  t.deepEqual([found.format, found.width, found.hasAlpha], [format, 1200, true], name);
  fs.rmSync(file);
}

ava.serial.before(async () => {
  if (!isRepository) return;
  clone();
  const { env } = await isolatedEnv();
  make = spawn('sh', ['-c', `exec ${blockOf('README.md', 'make start\n').trim()}`], {
    cwd: CLONE,
    env,
  });
  for (const stream of [make.stdout, make.stderr]) {
    stream?.setEncoding('utf8').on('data', text => {
      output += text;
    });
  }
  const isReady = () => /Ready: .*[\s\S]*curl/.test(output) || make.exitCode !== null;
  await until(isReady, { timeoutMs: START_MS_MAX, what: 'it is ready', detail: () => output });
  const [, apiKey] = /^API key[^\n]*:\s+(mk_\S+)/m.exec(output) ?? [];
  assert.ok(apiKey, output);
  service = { baseUrl: `http://127.0.0.1:${env.MATTING_PORT}`, apiKey };
  fs.mkdirSync(path.join(DESK, 'photos'));
  for (const name of ['photo.jpg', 'photos/1.jpg']) {
    fs.cpSync(path.join(CLONE, 'docs/images/demo.jpg'), path.join(DESK, name));
  }
});
ava.serial.after.always(async () => {
  make?.kill('SIGTERM');
  await requireNothingLeft(HOME);
  fs.rmSync(HOME, { recursive: true, force: true });
});

test('the first calls, of the README and of the guide', async t => {
  await shell(blockOf('README.md', 'curl '));
  await isCutOut(t, 'cutout.webp', 'webp');
  await shell(blockOf('docs/rest.md', 'cutout.png'));
  await isCutOut(t, 'cutout.png', 'png');
});

test('the client that the service serves, in a program and as a command', async t => {
  const page = 'client/README.md';
  await shell(blockOf(page, 'npm install'));
  fs.writeFileSync(path.join(DESK, 'cut.mts'), filled(blockOf(page, 'new MattingClient')));
  await shell('node cut.mts');
  await isCutOut(t, 'cutout.webp', 'webp');
  await shell(blockOf(page, 'npx matting-remove'));
  await isCutOut(t, 'cutouts/photos/1.png', 'png');
});

test("a webhook, by the guide's receiver and a recipe", async t => {
  await shell(`curl -fsSO ${service.baseUrl}/docs/examples/receiver.ts`);
  const secret = { CALLBACK_SECRET: `whsec_${Buffer.alloc(32, 7).toString('base64')}` };
  const env = envOf({ ...secret, PORT: '0' });
  const receiver = spawn(process.execPath, ['receiver.ts'], { cwd: DESK, env });
  t.teardown(() => receiver.kill());
  let received = '';
  receiver.stdout.setEncoding('utf8').on('data', text => {
    received += text;
  });
  const hears = (what: string) =>
    until(() => received.includes(what), {
      ...{ timeoutMs: COMMAND_MS_MAX, what },
      detail: () => received,
    });
  await hears('"port":');
  const address = `http://127.0.0.1:${/"port":(\d+)/.exec(received)?.[1]}`;
  const recipe = blockOf('docs/cookbook.md', 'callback_url');
  const answer = await shell(recipe.replace('https://shop.example.com', address), secret);
  await t.notThrowsAsync(hears(`matting.job.succeeded ${JSON.parse(answer).job_id}`));
});

test('an agent cuts out a file of its machine', async t => {
  const agent = await Agent.at(Number(new URL(service.baseUrl).port), service.apiKey);
  t.teardown(() => agent.client.close());
  const { command, image_id } = (await agent.call('create_upload')).fields;
  t.true(read('docs/agents.md').includes(command.split("'")[0]), command);
  await shell(command);
  const { text, isError } = await agent.remove({ image_id });
  t.false(isError, text);
  const [link] = /http\S+\/v1\/results\/[\w-]+/.exec(text) ?? [];
  await shell(`curl -fsSo agent.png ${link}`);
  await isCutOut(t, 'agent.png', 'png');
});
