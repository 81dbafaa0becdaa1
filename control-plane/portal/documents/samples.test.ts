/** Runs the samples of pages as a reader does: next to a photo.jpg. */
import { execFile } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { pngHeader } from '@matting/core/test/support/test-app.ts';
import {
  type CurlCall,
  curlSample,
  type SampledCall,
  shortCurl,
} from '@matting/proto/contract/curl-sample.ts';
import { isNotTested } from '@matting/test-support/skip.ts';
import ava from 'ava';
import { openTestApp, useTestApp } from '../test/portal-app.ts';
import { codeSamples } from './samples.ts';

const test = ava.serial;
const app = useTestApp(test);
const CLIENT = new URL('../../../client/src/', import.meta.url);

const directory = mkdtempSync(path.join(tmpdir(), 'matting-samples-'));
const scripts = mkdtempSync(path.join(tmpdir(), 'matting-scripts-'));
let baseUrl: string;
let ends: { stop(): Promise<void> };
let languages: readonly Language[];
test.before(async () => {
  baseUrl = `http://127.0.0.1:${await app.listen()}`;
  ends = app.onSubmitted(id => app.succeedJob(id));
  languages = await installedLanguages();
});
test.beforeEach(() => {
  for (const name of readdirSync(directory)) rmSync(path.join(directory, name));
  usePhoto(2);
});
test.after.always(async () => {
  await ends?.stop();
  for (const made of [directory, scripts]) rmSync(made, { recursive: true });
});

const usePhoto = (width: number) =>
  writeFileSync(path.join(directory, 'photo.jpg'), pngHeader(width, 1));
const spent = async () => 1000 - (await app.get('/v1/account')).json().credits.available;

interface Ran {
  readonly code: number;
  readonly output: string;
  readonly files: Readonly<Record<string, string>>;
}

function run(program: string, ...args: string[]): Promise<Ran> {
  const env = { PATH: process.env.PATH, HOME: process.env.HOME, MATTING_API_KEY: app.token };
  return new Promise(resolve => {
    execFile(program, args, { cwd: directory, env }, (error, stdout, stderr) => {
      const made = readdirSync(directory).filter(name => name !== 'photo.jpg');
      const read = (name: string) => [name, readFileSync(path.join(directory, name), 'utf8')];
      const files = Object.fromEntries(made.map(read));
      resolve({ code: Number(error?.code ?? 0), output: stdout + stderr, files });
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
    const { code, output, files } = await curl(call);
    t.not(code, 0, words);
    t.true(output.includes(words), output);
    t.deepEqual(files, {}, words);
  }
  rmSync(path.join(directory, 'photo.jpg'));
  t.not((await curl()).code, 0, 'no photo');
});

test('curl › writes the picture, and one picture is paid once', async t => {
  const before = await spent();
  const done = { code: 0, output: '', files: { 'cutout.png': 'a cut-out' } };
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

interface Language {
  readonly name: string;
  /** Exits with 0 if its programs can run here. */
  readonly probe: readonly [program: string, ...args: string[]];
  readonly file: string;
  readonly start: readonly [program: string, ...args: string[]];
}

const DOTNET = ['dotnet', 'run', '--file'] as const;
const LANGUAGES: readonly Language[] = [
  {
    name: 'TypeScript',
    probe: [process.execPath, '--version'],
    file: 'sample.mts',
    start: [process.execPath],
  },
  {
    name: 'Python',
    probe: ['python3', '-c', 'import requests'],
    file: 'sample.py',
    start: ['python3'],
  },
  {
    name: 'PHP',
    probe: ['php', '-r', 'exit(extension_loaded("curl") ? 0 : 1);'],
    file: 'sample.php',
    start: ['php'],
  },
  { name: 'Go', probe: ['go', 'version'], file: 'sample.go', start: ['go', 'run'] },
  { name: 'C#', probe: ['dotnet', 'run', '--help'], file: 'sample.cs', start: DOTNET },
  { name: 'Ruby', probe: ['ruby', '-v'], file: 'sample.rb', start: ['ruby'] },
];

async function installedLanguages(): Promise<readonly Language[]> {
  const found: Language[] = [];
  for (const language of LANGUAGES) {
    const { code } = await run(...language.probe);
    const reason = `the sample in ${language.name}: ${language.probe[0]} cannot run it here`;
    if (!isNotTested(code !== 0 && reason)) found.push(language);
  }
  return found;
}

/** The program is in another directory than the photo. */
function runSample({ name, file, start }: Language, call: SampledCall): Promise<Ran> {
  const text = codeSamples(call).find(sample => sample.name === name)?.text ?? '';
  const script = path.join(scripts, file);
  writeFileSync(
    script,
    text
      .replace("'matting-client'", JSON.stringify(new URL('index.ts', CLIENT)))
      .replace("'matting-client/files'", JSON.stringify(new URL('files.ts', CLIENT))),
  );
  const [program, ...args] = start;
  return run(program, ...args, script);
}

test('each language › makes the same request as curl', async t => {
  const options = new Map([
    ['output_format', 'jpeg'],
    ['background', '#fff'],
    ['crop', 'true'],
  ]);
  const call = { baseUrl, options };
  t.is((await curl(call)).code, 0);
  const before = await spent();
  for (const language of languages) {
    const { code, output, files } = await runSample(language, call);
    t.deepEqual([code, output], [0, ''], language.name);
    t.deepEqual([...new Set(Object.values(files))], ['a cut-out'], language.name);
    for (const name of Object.keys(files)) rmSync(path.join(directory, name));
  }
  t.is(await spent(), before, 'it is answered from the job of the first');
});

test('each language › fails and says why', async t => {
  for (const language of languages) {
    const { code, output, files } = await runSample(language, { baseUrl: `${baseUrl}/none` });
    t.deepEqual([code, files], [1, {}], language.name);
    t.regex(output, /NOT_FOUND|There is no such path/, language.name);
  }
});

test('the first call › writes the picture, or fails with the error', async t => {
  const first = (call: Partial<CurlCall> = {}) => run('sh', '-c', shortCurl({ baseUrl, ...call }));
  t.is(shortCurl({ baseUrl }).split('\n').length, 3);
  const done = await first();
  t.deepEqual([done.code, done.files], [0, { 'cutout.png': 'a cut-out' }]);
  const refused = await first({ apiKey: 'mk_wrong' });
  t.not(refused.code, 0);
  t.regex(String(refused.files['cutout.png']), /INVALID_API_KEY/);
  const options = new Map([['output_format', 'webp']]);
  t.is((await first({ options })).files['cutout.webp'], 'a cut-out', 'a key of its own');
});

/** As .NET writes a form: names without quotes, and a media type for each text. */
test('C# › sends a form that the service reads', async t => {
  const part = (head: string, text: string) => `--b\r\n${head}\r\n\r\n${text}\r\n`;
  const type = 'Content-Type: text/plain; charset=utf-8';
  const picture = pngHeader(2, 1).toString('latin1');
  const body =
    part('Content-Disposition: form-data; name=image_file; filename=photo.jpg', picture) +
    part(`${type}\r\nContent-Disposition: form-data; name=crop`, 'true');
  const answer = await fetch(`${baseUrl}/v1/matting`, {
    method: 'POST',
    headers: {
      authorization: `Bearer ${app.token}`,
      'idempotency-key': 'a-form-of-dotnet',
      'content-type': 'multipart/form-data; boundary="b"',
    },
    body: Buffer.from(`${body}--b--\r\n`, 'latin1'),
  });
  t.is(answer.status, 200, await answer.text());
});
