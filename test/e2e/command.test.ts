/** What `matting up` and `cutout` refuse before anything runs. */
import assert from 'node:assert/strict';
import { copyFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import path from 'node:path';
import { PassThrough } from 'node:stream';
import type { WriteStream } from 'node:tty';
import ava, { type ExecutionContext } from 'ava';
import { loadSupervisorConfig } from '../../bin/config.ts';
import { type CutoutOptions, cutout } from '../../bin/cutout.ts';
import { fetchModels } from '../../bin/fetch-models.ts';
import { gpuHint } from '../../bin/gpu-hint.ts';
import { nodeReadyMaxMs } from '../../bin/stack.ts';
import { type StopTimeouts, SupervisedProgram } from '../../bin/supervised-program.ts';
import { Terminal } from '../../bin/terminal.ts';
import { up } from '../../bin/up.ts';
import {
  isolatedEnv,
  processesOf,
  ROOT,
  requireNothingLeft,
  spawnMatting,
} from '../running-service.ts';
import { at } from '../support/at.ts';
import { until } from '../support/processes.ts';
import { killStopped } from '../support/stopped-cannot-be-killed.ts';
import { temporaryFolder } from '../support/temporary-folder.ts';
import { rejectsWith } from '../support/throws.ts';

const test = ava.serial;

function silentTerminal(): Terminal {
  const out = new PassThrough();
  out.on('data', text => assert.doesNotMatch(String(text), /Starting/));
  return new Terminal(out as unknown as WriteStream);
}

const { signal } = new AbortController();
const noStack = () => assert.fail('it has started');

test('a command that is none, the help of one that another program has, and what a program says', async t => {
  for (const args of [['__proto__'], ['up', 'extra']]) {
    const { exited, output } = spawnMatting(args, {});
    t.is(await exited, 64, output());
    t.regex(output(), /^matting: (unknown|too many)/);
  }
  const help = spawnMatting(['help', 'keys'], {});
  t.is(await help.exited, 0);
  t.regex(help.output(), /create .*\n(.*\n)*.*revoke/);

  const wrong = { MATTING_SYNC_WAIT_MS: 'soon-SECRET', MATTING_RESULT_TTL_MS: 'SECRET' };
  const { env, dataDir } = await isolatedEnv(wrong);
  const { exited, output } = spawnMatting(['up'], env);
  t.is(await exited, 78, output());
  for (const name of Object.keys(wrong)) t.regex(output(), new RegExp(name));
  t.notRegex(output(), /SECRET|\n\s+at /);
  await requireNothingLeft(dataDir);
});

test('ports that are no number, that the system would choose, or for two, are all named', t => {
  const read = (env: Record<string, string>) => () => loadSupervisorConfig(env);
  const error = t.throws(
    read({ MATTING_PORT: '9', MATTING_NODE_PORT: '9', MATTING_NODE_HTTP_PORT: '0' }),
  );
  t.regex(error?.message ?? '', /MATTING_NODE_HTTP_PORT must be .*1 to 65535/);
  t.regex(error?.message ?? '', /MATTING_NODE_PORT must be another port than MATTING_PORT/);
  const { message } = t.throws(read({ MATTING_PORT: 'eighty-SECRET' })) ?? {};
  t.regex(message ?? '', /MATTING_PORT/);
  t.notRegex(message ?? '', /SECRET/);
});

test('a port in use and what cannot be written are one line that names the variable', async t => {
  const { env, dataDir } = await isolatedEnv();
  const before = { ...process.env };
  t.teardown(() => {
    for (const name of Object.keys(env)) delete process.env[name];
    Object.assign(process.env, before);
  });
  Object.assign(process.env, env);
  const refused = async (said: RegExp) => {
    await t.throwsAsync(up(silentTerminal(), signal, noStack), { message: said });
    t.deepEqual(processesOf(dataDir), []);
  };
  const server = createServer().listen(Number(env.MATTING_PORT), '127.0.0.1');
  await refused(new RegExp(`port ${env.MATTING_PORT} is in use.*MATTING_PORT`));
  server.close();
  const file = path.join(dataDir, 'a-file');
  writeFileSync(file, '');
  process.env.MATTING_DATA_DIR = path.join(file, 'data');
  await refused(/cannot use the directory.*MATTING_DATA_DIR/);
  process.env.MATTING_DATA_DIR = dataDir;
  const token = path.join(dataDir, 'node-token');
  mkdirSync(token);
  await refused(/cannot read .*node-token/);
  rmSync(token, { recursive: true });
  writeFileSync(token, '');
  await refused(/node-token .*remove it/);
  rmSync(token);
  mkdirSync(path.join(dataDir, 'logs/control-plane.log'), { recursive: true });
  await refused(/EISDIR.*control-plane\.log/);
});

test('models that the operator refuses, or that cannot be written, are not fetched', async t => {
  const folder = await temporaryFolder(t);
  const modelDir = path.join(folder, 'models');
  const fetched = (extra: Record<string, string>) => {
    const env = { PATH: process.env.PATH, MATTING_MODEL_DIR: modelDir, ...extra };
    return fetchModels(loadSupervisorConfig(env), silentTerminal(), signal);
  };
  const strict = { MATTING_COMMERCIAL_USE: 'strict', MATTING_QUALITY: 'permissive' };
  await rejectsWith(t, fetched(strict), {
    name: 'CommandError',
    exitCode: 78,
    message: /every model: strict refuses u2netp .*every model: strict refuses modnet /s,
  });
  await writeFile(path.join(folder, 'a-file'), '');
  await t.throwsAsync(fetched({ MATTING_MODEL_DIR: path.join(folder, 'a-file/models') }), {
    message: /cannot use the directory.*MATTING_MODEL_DIR/,
  });
});

test('a start names what it goes on without', async t => {
  const { env } = await isolatedEnv({
    MATTING_CPU_RUNTIME: 'auto',
    MATTING_EXECUTION_PROVIDER: 'cuda',
  });
  const told: string[] = [];
  const terminal = silentTerminal();
  terminal.line = text => told.push(text);
  await fetchModels(loadSupervisorConfig(env), terminal, signal);
  t.deepEqual(told, [
    'matting: cuda runs the models here: the runtimes of the CPU are not compared',
  ]);
});

test('`cutout` refuses a wrong call before anything is fetched or started', async t => {
  const folder = await temporaryFolder(t);
  const place = (name: string) => path.join(folder, name);
  mkdirSync(place('directory.png'));
  writeFileSync(place('empty.jpg'), '');
  writeFileSync(place('text.jpg'), 'no picture');
  writeFileSync(place('drawing.jpg'), '<svg xmlns="http://www.w3.org/2000/svg"/>');
  const photo = path.join(ROOT, 'docs/images/demo.jpg');
  copyFileSync(photo, place('demo.jpg'));
  const png = place('a.png');
  const readKinds = /Send an image as JPEG, PNG, WebP, AVIF or JPEG XL/;
  const cases: [CutoutOptions, exitCode: number, RegExp][] = [
    [{ images: [], out: place('a.gif') }, 64, /\.png, \.webp, \.avif, \.jxl/],
    [{ images: ['a.png', 'b.png'], out: png }, 64, /--out/],
    [{ images: ['no-such.jpg'], out: png }, 66, /no such file: no-such\.jpg/],
    [{ images: [place('empty.jpg')], out: png }, 65, /\.jpg: This is an empty file\./],
    [{ images: [place('text.jpg')], out: png }, 65, readKinds],
    [{ images: [place('drawing.jpg')], out: png }, 65, /an SVG drawing/],
    [{ images: [], out: place('directory.png') }, 73, /is a directory/],
    [{ images: [], out: place('none/cut.png') }, 73, /no such directory/],
    [{ images: [], out: place(`${'n'.repeat(252)}.png`) }, 73, /does not take its name/],
    [{ images: [photo, place('demo.jpg')], out: undefined }, 64, /both become demo-cutout\.png/],
    [{ images: [], out: png, finishing: { scale: '5%' } }, 64, /scale must be .*10% to 100%/],
    [{ images: [], out: png, finishing: { background: 'blurple' } }, 64, /background must be/],
    [{ images: [], out: place('a.jpg') }, 64, /jpeg has no transparency/],
    [
      { images: [], out: png, finishing: { backgroundFile: place('none.png') } },
      66,
      /cannot read the background/,
    ],
  ];
  for (const [options, exitCode, message] of cases) {
    const started = cutout(options, silentTerminal(), signal, noStack);
    await rejectsWith(t, started, { name: 'CommandError', exitCode, message });
  }
});

test('a host with a GPU is told what to do, once, and only where it is of use', async t => {
  const folder = await temporaryFolder(t);
  const command = path.join(folder, 'nvidia-smi');
  const modelDir = path.join(folder, 'models');
  const hint = (env: Record<string, string> = {}) =>
    gpuHint(loadSupervisorConfig({ PATH: folder, MATTING_MODEL_DIR: modelDir, ...env }));
  t.is(await hint(), undefined, 'no such command');
  await writeFile(command, '#!/bin/sh\necho "a driver that fails" >&2\nexit 9\n');
  await chmod(command, 0o755);
  t.is(await hint(), undefined, 'no driver');
  await writeFile(command, '#!/bin/sh\necho "NVIDIA L4"\necho "NVIDIA L4"\n');
  t.regex((await hint()) ?? '', /a GPU \(NVIDIA L4\).* providers install cuda, then start/);
  t.is(await hint({ MATTING_EXECUTION_PROVIDER: 'cpu' }), undefined);
  await mkdir(path.join(modelDir, 'providers/onnxruntime-1'), { recursive: true });
  t.is(await hint(), undefined, 'it is installed');
});

test('a start waits for what a node does on a GPU, and no longer than needed on a CPU', async t => {
  const folder = await temporaryFolder(t);
  const modelDir = path.join(folder, 'models');
  const maxMs = (env: Record<string, string> = {}) =>
    nodeReadyMaxMs(loadSupervisorConfig({ MATTING_MODEL_DIR: modelDir, ...env }));
  const onCpu = await maxMs();
  t.is(await maxMs({ MATTING_EXECUTION_PROVIDER: 'cpu' }), onCpu);
  const onGpu = await maxMs({ MATTING_EXECUTION_PROVIDER: 'cuda' });
  t.true(onGpu > onCpu);
  await mkdir(path.join(modelDir, 'providers/onnxruntime-1'), { recursive: true });
  t.is(await maxMs(), onGpu);
  t.is(await maxMs({ MATTING_EXECUTION_PROVIDER: 'cpu' }), onCpu);
});

const UNTIL = { timeoutMs: 60_000 };
const SHORT: StopTimeouts = { stopMs: 100, hurriedStopMs: 100, killMs: 100 };
/** Prints a line, then ends at a signal. */
const OBEDIENT = `
  process.stdout.write('up\\n');
  setInterval(() => undefined, 1000);
`;

async function start(context: ExecutionContext, source: string, timeouts = SHORT) {
  const directory = await temporaryFolder(context);
  const main = path.join(directory, 'main.mjs');
  const logFile = path.join(directory, 'main.log');
  await writeFile(main, source);
  const said: string[] = [];
  const say = (line: string) => void said.push(line);
  const env = { PATH: process.env.PATH ?? '' };
  const program = new SupervisedProgram({ name: 'program', main, env, logFile, say, timeouts });
  const pids = new Set<number>();
  context.teardown(() => {
    for (const pid of [...pids, program.pid ?? 0]) if (pid > 0) killStopped(pid);
  });
  const log = () => readFile(logFile, 'utf8');
  await until(async () => /up/.test(await log()), { ...UNTIL, what: 'it runs' });
  const stop = () => {
    const pid = program.pid as number;
    pids.add(pid);
    process.kill(pid, 'SIGSTOP');
    return pid;
  };
  return { program, said, log, stop, pids };
}

test('a program that does not die is left behind, by name', async t => {
  const { program, said, stop } = await start(t, OBEDIENT);
  const pid = stop();
  await program.stop();
  t.is(said.length, 2);
  t.regex(said.at(-1) ?? '', new RegExp(`process ${pid}.* SIGKILL`));
});

test('hurried, a stop that would have waited ends too', async t => {
  const timeouts = { ...SHORT, stopMs: 3_600_000 };
  const { program, said, stop } = await start(t, OBEDIENT, timeouts);
  stop();
  const stopped = program.stop();
  await program.hurry();
  await stopped;
  t.regex(said.at(-1) ?? '', /SIGKILL/);
});

test('a program that leaves a child process behind is started again', async t => {
  // The child holds standard error's pipe, as an engine that does not die.
  const source = `
    import { spawn } from 'node:child_process';
    import { existsSync, writeFileSync } from 'node:fs';
    const marker = new URL('./second', import.meta.url);
    process.stdout.write('up\\n');
    if (existsSync(marker)) setInterval(() => undefined, 1000);
    else {
      writeFileSync(marker, '');
      const options = { detached: true, stdio: ['ignore', 'ignore', 'inherit'] };
      const left = spawn(process.execPath, ['-e', 'setInterval(() => {}, 1000)'], options);
      process.on('SIGUSR2', () => process.exit(3));
      process.stdout.write('left ' + left.pid + '\\n');
    }
  `;
  const { program, said, log, pids } = await start(t, source);
  await until(async () => /left \d+/.test(await log()), { ...UNTIL, what: 'it left one' });
  pids.add(Number(/left (\d+)/.exec(await log())?.[1]));
  program.keepUp();
  const before = program.pid as number;
  process.kill(before, 'SIGUSR2');
  await until(() => program.pid !== before, { ...UNTIL, what: 'it is started again' });
  t.regex(at(said, 0), /^the program ended \(exit code 3\)/);
  await program.stop();
});
