/** Without any rights, by docs/security.md. */
import { execFileSync, spawn } from 'node:child_process';
import { cpSync, existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { isolatedEnv, processesOf, ROOT } from '../running-service.ts';
import { findProgram } from '../support/foreign-program.ts';
import { isNotTested } from '../support/skip.ts';
import { codeOf, readPage } from './runbook-page.ts';

const test = ava.serial;

/** Debian's nobody, who owns nothing. */
const NOBODY = 65_534;
const LOOK_MS = 100;
const NO_CAPABILITIES = '0000000000000000';

const skip =
  process.getuid?.() === 0 && findProgram('setpriv') !== undefined
    ? false
    : 'only root may become another user, by setpriv';

function statusOf(pid: number): Readonly<Record<string, string>> | undefined {
  try {
    const lines = readFileSync(`/proc/${pid}/status`, 'utf8').split('\n');
    return Object.fromEntries(lines.map(line => line.split(':\t') as [string, string]));
  } catch {
    return undefined;
  }
}

test.skipIf(isNotTested(skip))('a picture is cut out without any right', async t => {
  const { env, dataDir } = await isolatedEnv({ MATTING_EXECUTION_PROVIDER: 'cpu' });
  const models = path.join(dataDir, 'models');
  const fetching = ['bin/matting.ts', 'models', 'fetch', 'u2netp'];
  execFileSync(process.execPath, fetching, {
    cwd: ROOT,
    env: {
      ...process.env,
      MATTING_MODEL_DIR: path.join(ROOT, 'model-cache'),
      MATTING_CPU_RUNTIME: 'onnxruntime',
    },
  });
  cpSync(path.join(ROOT, 'model-cache/u2netp'), path.join(models, 'u2netp'), { recursive: true });
  execFileSync('chown', ['-R', `${NOBODY}:${NOBODY}`, dataDir]);
  const out = path.join(dataDir, 'cutout.png');
  const setpriv = codeOf(readPage('docs/security.md')).find(line => /^setpriv /.test(line)) ?? '';
  t.regex(setpriv, /--bounding-set=-all/);
  const command = setpriv.replaceAll('matting', String(NOBODY)).replace(/ sh bin.*$/, '');
  const program = `"${process.execPath}" bin/matting.ts cutout --out="${out}" docs/images/demo.jpg`;
  const child = spawn('sh', ['-c', `exec ${command} ${program}`], {
    cwd: ROOT,
    env: { ...env, HOME: dataDir, TMPDIR: dataDir, MATTING_MODEL_DIR: models },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) {
    stream.setEncoding('utf8').on('data', text => {
      said += text;
    });
  }
  const seen = new Map<number, string>();
  const looking = setInterval(() => {
    for (const { pid, command: name } of processesOf(dataDir)) {
      const status = statusOf(pid);
      if (status === undefined || !/node/.test(name)) continue;
      const { CapEff, CapBnd, CapPrm, NoNewPrivs, Uid = '' } = status;
      const rights = [CapEff, CapBnd, CapPrm, NoNewPrivs, Uid.split('\t')[0]].join();
      seen.set(pid, `${name.split('/').at(-1)?.split(' ')[0]} ${rights}`);
    }
  }, LOOK_MS);
  const code = await new Promise<number | null>(resolve => child.once('close', resolve));
  clearInterval(looking);
  t.is(code, 0, said);
  t.truthy(existsSync(out));
  const none = [NO_CAPABILITIES, NO_CAPABILITIES, NO_CAPABILITIES, '1', String(NOBODY)].join();
  const others = [...seen.values()].filter(rights => !rights.endsWith(none));
  t.deepEqual(others, []);
  // The command, both programs, an engine and a picture worker.
  t.true(seen.size >= 5, [...seen.values()].join('\n'));
});
