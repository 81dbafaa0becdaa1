import { execFile, spawn } from 'node:child_process';
import { existsSync, readdirSync, rmSync, statSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import ava from 'ava';
import sharp from 'sharp';
import { isolatedEnv, ROOT, requireNothingLeft, spawnMatting } from '../running-service.ts';
import { at } from '../support/at.ts';
import { descendantsOf, until } from '../support/processes.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';

const test = ava.serial;

const run = promisify(execFile);

const untilReady = (output: () => string, isEnded = () => false) =>
  until(() => output().includes('Ready:') || isEnded(), {
    timeoutMs: 240_000,
    what: 'it is ready',
    detail: output,
  });

test('a first start that fails late has shown every key it made', async t => {
  // With a GPU the engine starts, and this is an ordinary stop.
  const { env, dataDir } = await isolatedEnv({ MATTING_EXECUTION_PROVIDER: 'cuda' });
  const { program, exited, output } = spawnMatting(['up'], env);
  await untilReady(output, () => !program.running);
  program.signal('SIGTERM');
  await exited;
  await requireNothingLeft(dataDir);
  const listing = await run(process.execPath, ['bin/matting.ts', 'keys', 'list', '--json'], {
    cwd: ROOT,
    env,
  });
  const made = (JSON.parse(listing.stdout) as { prefix: string }[]).map(({ prefix }) => prefix);
  const shown = output().match(/(?<=API key.*: {2})mk_[\w-]+/g) ?? [];
  t.is(shown.length, made.length, output());
  for (const [index, key] of shown.entries()) t.true(key.startsWith(at(made, index)), output());
  rmSync(dataDir, { recursive: true, force: true });
});

test('a supervisor that is killed outright takes every process with it', async t => {
  const { env, dataDir } = await isolatedEnv();
  const { program, output } = spawnMatting(['up'], env);
  await untilReady(output);
  const before = descendantsOf(program.pid);
  t.true(before.length >= 4, JSON.stringify(before));
  program.signal('SIGKILL');
  const left = () => before.filter(({ pid }) => existsSync(`/proc/${pid}`));
  await until(() => left().length === 0, {
    timeoutMs: 60_000,
    what: 'no child is left',
    detail: () => JSON.stringify(left()),
  });
  await requireNothingLeft(dataDir);
  rmSync(dataDir, { recursive: true, force: true });
});

test('a terminal that is closed, whichever process leads its session, takes the service with it', async t => {
  const { env, dataDir } = await isolatedEnv();
  // The leader gets the signal and does not forward it.
  const command = `trap '' HUP; '${process.execPath}' bin/matting.ts up; :`;
  const starter = spawn('script', ['-qec', command, '/dev/null'], { cwd: ROOT, env });
  let output = '';
  starter.stdout.setEncoding('utf8').on('data', text => {
    output += text;
  });
  await untilReady(() => output);
  starter.kill('SIGKILL');
  await t.notThrowsAsync(requireNothingLeft(dataDir));
  rmSync(dataDir, { recursive: true, force: true });
});

test('weights that were brought are used by `cutout`, and what is wanted is the same as over REST: square, 85 %, JPEG, told as JSON', async t => {
  const folder = await temporaryFolder(t);
  const [models, behind, out] = ['models', 'behind.png', 'square.jpg'].map(name =>
    path.join(folder, name),
  ) as [string, string, string];
  const { env } = await isolatedEnv({
    MATTING_MODEL_DIR: models,
    MATTING_WEIGHTS_DIR: path.join(ROOT, 'model-cache'),
  });
  const create = { width: 30, height: 20, channels: 3, background: '#00f' } as const;
  await sharp({ create }).toFile(behind);
  const square = ['--crop', '--scale', '85%', '--output-width', '300', '--output-height', '300'];
  const named = ['--json', '--model', 'u2netp', '--out', out];
  const args = ['cutout', ...named, ...square, '--background-file', behind];
  const { exited, output } = spawnMatting(args, env);
  t.is(await exited, 0, output());
  const { cutouts } = JSON.parse(/^\{"cutouts":.*$/m.exec(output())?.[0] ?? '');
  t.is(cutouts.length, 1);
  t.like(cutouts[0], { file: out, content_type: 'image/jpeg', width: 300, height: 300 });
  t.like(cutouts[0], { size_bytes: statSync(out).size, warnings: [] });
  t.deepEqual(cutouts[0].models, [{ name: 'u2netp', role: 'subject' }]);
  t.true(cutouts[0].stages_ms.infer > 0, output());
  t.deepEqual(readdirSync(path.join(models, 'u2netp/1.0.0')), ['prepared']);
  t.is((await sharp(out).metadata()).format, 'jpeg');
  const { data, info } = await sharp(out).raw().toBuffer({ resolveWithObject: true });
  t.deepEqual([info.width, info.height, info.channels], [300, 300, 3]);
  for (const i of [0, 299, 300 * 299, 300 * 300 - 1]) {
    t.true(Number(data[3 * i]) <= 3, `corner ${i}: ${data[3 * i]}`);
    t.true(Number(data[3 * i + 2]) >= 250);
  }
});
