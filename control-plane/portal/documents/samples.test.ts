/** The tests run the samples of pages as their reader does: beside a photo.jpg. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pngHeader } from '@matting/core/test/support/test-app.ts';
import { type CurlCall, curlSample } from '@matting/proto/contract/curl-sample.ts';
import { isNotTested } from '@matting/test-support/skip.ts';
import ava from 'ava';
import { openTestApp, useTestApp } from '../test/portal-app.ts';
import { codeSamples } from './samples.ts';

const test = ava.serial;
const app = useTestApp(test);
const CLIENT = new URL('../../../client/src/', import.meta.url);

const directory = mkdtempSync(path.join(tmpdir(), 'matting-samples-'));
let baseUrl: string;
let ends: { stop(): Promise<void> };
let isPythonMissing: boolean;
test.before(async () => {
  baseUrl = `http://127.0.0.1:${await app.listen()}`;
  ends = app.onSubmitted(id => app.succeedJob(id));
  const { code } = await run('python3', '-c', 'import requests');
  isPythonMissing = isNotTested(code !== 0 && 'the sample in Python: no python3 with requests');
});
test.beforeEach(() => {
  for (const name of readdirSync(directory)) rmSync(path.join(directory, name));
  usePhoto(2);
});
test.after.always(async () => {
  await ends?.stop();
  rmSync(directory, { recursive: true });
});

const usePhoto = (width: number) =>
  writeFileSync(path.join(directory, 'photo.jpg'), pngHeader(width, 1));
const spent = async () => 1000 - (await app.get('/v1/account')).json().credits.available;

interface Ran {
  readonly code: number;
  readonly said: string;
  /** These files lie beside the photo, with these contents. */
  readonly files: Readonly<Record<string, string>>;
}

function run(program: string, ...args: string[]): Promise<Ran> {
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, MATTING_API_KEY: app.token };
  return new Promise(resolve => {
    execFile(program, args, { cwd: directory, env }, (error, stdout, stderr) => {
      const made = readdirSync(directory).filter(name => name !== 'photo.jpg');
      const read = (name: string) => [name, readFileSync(path.join(directory, name), 'utf8')];
      const files = Object.fromEntries(made.map(read));
      resolve({ code: Number(error?.code ?? 0), said: stdout + stderr, files });
    });
  });
}

const curl = (call: Partial<CurlCall> = {}) => run('sh', '-c', curlSample({ baseUrl, ...call }));

async function closedPort(): Promise<string> {
  const server = createServer().listen(0, '127.0.0.1');
  await new Promise(resolve => server.once('listening', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise(resolve => server.close(resolve));
  return `http://127.0.0.1:${port}`;
}

test('curl › fails, says why and leaves no file where no picture came', async t => {
  const slow = await openTestApp({ syncWaitMs: 50 }, t);
  const failing = [
    [{ apiKey: 'mk_wrong' }, 'INVALID_API_KEY'],
    [{ apiKey: "it's $(echo none)" }, 'INVALID_API_KEY'],
    [{ options: new Map([['scale', "9'0%"]]) }, 'INVALID_PARAMETER'],
    [{ baseUrl: await closedPort() }, 'connect'],
    [{ baseUrl: `http://127.0.0.1:${await slow.listen()}`, apiKey: slow.token }, 'sync_timeout'],
  ] as const;
  for (const [call, words] of failing) {
    const { code, said, files } = await curl(call);
    t.not(code, 0, words);
    t.true(said.includes(words), said);
    t.deepEqual(files, {}, words);
  }
  rmSync(path.join(directory, 'photo.jpg'));
  t.not((await curl()).code, 0, 'no photo');
});

test('curl › writes the picture, and one picture is paid once', async t => {
  const before = await spent();
  const done = { code: 0, said: '', files: { 'cutout.png': 'a cut-out' } };
  t.deepEqual(await curl({ apiKey: app.token }), done);
  t.deepEqual(await curl(), done);
  t.is((await spent()) - before, 1);
  usePhoto(3);
  t.deepEqual(await curl(), done, 'another picture is no conflict');
  t.is((await spent()) - before, 2);
  const options = new Map([
    ['output_format', 'webp'],
    ['crop', 'true'],
  ]);
  t.deepEqual((await curl({ options })).files['cutout.webp'], 'a cut-out', 'nor are other options');
  t.is((await spent()) - before, 3);
});

test('TypeScript and Python › make the same request as curl', async t => {
  const options = new Map([
    ['output_format', 'jpeg'],
    ['background', '#fff'],
    ['crop', 'true'],
  ]);
  for (const call of [{ baseUrl }, { baseUrl, options }]) {
    t.is((await curl(call)).code, 0);
    const before = await spent();
    const [, typescript, python] = codeSamples(call).map(({ text }) => text);
    const script = String(typescript)
      .replace("'matting-client'", JSON.stringify(new URL('index.ts', CLIENT)))
      .replace("'matting-client/files'", JSON.stringify(new URL('files.ts', CLIENT)));
    const programs = [[process.execPath, '--input-type=module-typescript', '-e', script]];
    if (!isPythonMissing) programs.push(['python3', '-c', String(python)]);
    for (const [program = '', ...args] of programs) {
      const { code, said, files } = await run(program, ...args);
      t.deepEqual([code, said], [0, '']);
      t.deepEqual([...new Set(Object.values(files))], ['a cut-out'], program);
    }
    t.is(await spent(), before, 'it is answered from the job of the first');
  }
});

test('Python › fails and says why', async t => {
  if (isPythonMissing) return t.pass();
  const [, , python] = codeSamples({ baseUrl: `${baseUrl}/none` });
  const { code, said, files } = await run('python3', '-c', String(python?.text));
  t.deepEqual([code, files], [1, {}]);
  t.regex(said, /NOT_FOUND/);
});
