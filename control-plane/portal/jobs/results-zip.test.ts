import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { get, type IncomingMessage } from 'node:http';
import path from 'node:path';
import { imageBody } from '@matting/core/test/support/test-app.ts';
import { findProgram } from '@matting/test-support/foreign-program.ts';
import { isNotTested } from '@matting/test-support/skip.ts';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava, { type ExecutionContext } from 'ava';
import { useTestApp } from '../test/portal-app.ts';
import { type SignedInBrowser, signIn, signInElsewhere } from '../test/signed-in-browser.ts';
import type { AccountJobQuestion, AccountJobs } from './account-jobs.ts';
import { chooseResults, pagesOfList } from './results-zip.ts';

const ZIP_RESULTS_MAX = 500;
const hasUnzip = findProgram('unzip') !== undefined;
const test = ava.serial.skipIf(isNotTested(!hasUnzip && 'no unzip here'));

let owner: SignedInBrowser;
let viewer: SignedInBrowser;
let stranger: SignedInBrowser;
const app = useTestApp(ava.serial, {}, async () => {
  owner = await signIn(app, { mail: 'owner@example.org' });
  viewer = await signIn(app, { role: 'viewer' });
  stranger = await signInElsewhere(app);
});

const ZIP = '/account/jobs/results.zip';

async function finished(reference: string, bytes: Buffer<ArrayBuffer>, token = app.token) {
  const answer = await app.post('/v1/matting/jobs', imageBody({ reference }), {
    authorization: `Bearer ${token}`,
  });
  const id: string = answer.json().job_id;
  return { id, ...(await app.succeedJob(id, bytes)) };
}

async function unzipped(t: ExecutionContext, query = '') {
  const { statusCode, rawPayload, headers } = await owner.get(`${ZIP}${query}`);
  t.is(statusCode, 200);
  t.is(headers['content-type'], 'application/zip');
  const folder = await temporaryFolder(t);
  const file = path.join(folder, 'a.zip');
  writeFileSync(file, rawPayload);
  execFileSync('unzip', ['-tq', file]);
  t.false(execFileSync('unzip', ['-v', file], { encoding: 'utf8' }).includes('Defl:'));
  execFileSync('unzip', ['-q', file, '-d', path.join(folder, 'out')], {
    env: { ...process.env, LC_ALL: 'C.UTF-8' },
  });
  t.deepEqual(readdirSync(folder).sort(), ['a.zip', 'out']);
  const entries = readdirSync(path.join(folder, 'out'), { withFileTypes: true });
  return new Map(
    entries.map(({ name, parentPath }) => [name, readFileSync(path.join(parentPath, name))]),
  );
}

test('the archive has every result of the list, under names that are safe everywhere', async t => {
  t.is((await owner.get(ZIP)).statusCode, 404, 'there is none yet');
  const files = new Map<string, Buffer>();
  for (const [reference, name] of [
    ['../../etc/passwd', '_.._etc_passwd.png'],
    ['C:\\Windows\\a|b?*.webp', 'C__Windows_a_b__.png'],
    ['con', '_con.png'],
    ['com¹', '_com¹.png'],
    ['鞋 7 👟', '鞋 7 👟.png'],
    [`${'长'.repeat(128)}`, `${'长'.repeat(50)}.png`],
    ['. .', undefined],
  ] as const) {
    const bytes = randomBytes(200_000);
    const { id } = await finished(reference, bytes);
    files.set(name ?? `${id}.png`, bytes);
  }
  const found = await unzipped(t, '?days=7');
  t.deepEqual([...found.keys()].sort(), [...files.keys()].sort());
  for (const [name, bytes] of files) t.true(found.get(name)?.equals(bytes), name);
  const alike = ['photo.JPG', 'Photo.png', 'photo (2)'];
  for (const reference of alike) await finished(reference, Buffer.from(reference));
  const names = [...(await unzipped(t))].filter(([, bytes]) => alike.includes(`${bytes}`));
  t.is(new Set(names.map(([name]) => name.toLowerCase())).size, alike.length, `${names}`);
  t.is((await stranger.get(ZIP)).statusCode, 404);
  t.is((await owner.get(`${ZIP}?state=failed`)).statusCode, 404);
});

test('the list links it with its filter, to those who may see results', async t => {
  const other = await app.createKey();
  const bytes = Buffer.from('of the other key');
  await finished('other', bytes, other);
  const key = other.slice(3, 15);
  const { body } = await owner.get(`/account/jobs?key=${key}&days=7`);
  t.true(body.includes(`href="${ZIP}?key=${key}&amp;days=7"`));
  t.false((await viewer.get('/account/jobs')).body.includes(ZIP));
  t.deepEqual(await unzipped(t, `?key=${key}&days=7`), new Map([['other.png', bytes]]));
  t.deepEqual([...(await unzipped(t, '?search=other')).keys()], ['other.png']);
});

test('a result that went meanwhile is left out and named, and the others are whole', async t => {
  const token = await app.createKey();
  const [one, two] = [randomBytes(70_000), randomBytes(70_000)];
  await finished('first', one, token);
  const gone = await finished('gone', Buffer.from('x'), token);
  await finished('last', two, token);
  rmSync(path.join(app.storageDir, gone.blob));
  const found = await unzipped(t, `?key=${token.slice(3, 15)}`);
  t.deepEqual([...found.keys()].sort(), ['first.png', 'last.png', 'left-out.txt']);
  t.true(found.get('first.png')?.equals(one) && found.get('last.png')?.equals(two));
  t.regex(`${found.get('left-out.txt')}`, /expired or were deleted[\s\S]*\r\ngone\.png\r\n$/);
});

test('an account has few archives at once, and leaves room for others', async t => {
  await finished('large', Buffer.alloc(24 * 2 ** 20));
  const port = await app.listen();
  const headers = { cookie: owner.cookieHeader };
  const begin = () =>
    new Promise<IncomingMessage>((resolve, reject) => {
      get({ port, path: ZIP, headers }, resolve).on('error', reject);
    });
  const answers: IncomingMessage[] = [];
  t.teardown(() => {
    for (const answer of answers) answer.destroy();
  });
  const statusOfNext = async () => answers[answers.push(await begin()) - 1]?.statusCode;
  for (let count = 0; count < 8; count += 1) t.is(await statusOfNext(), 200);
  t.is(await statusOfNext(), 503);
  t.is((await stranger.get(ZIP)).statusCode, 404);
  answers[0]?.destroy();
  await until('the slot is free', async () => (await statusOfNext()) === 200);
});

const QUESTION: AccountJobQuestion = {
  group: 'all',
  apiKeyId: undefined,
  days: 30,
  search: undefined,
  after: undefined,
};

/** An endless list of jobs with results of so many bytes. Null: they expired. */
function endless(bytes: number | null) {
  let pages = 0;
  const result = { bytes, format: 'png' };
  const times = { deletedAtMs: null, expiresAtMs: bytes === null ? 1 : 3, readAtMs: 2 };
  const job = { id: 'a', reference: 'a', state: 'succeeded', result, ...times };
  const list = async () => {
    pages += 1;
    return { jobs: Array(50).fill(job), next: 'x' };
  };
  return { list: list as AccountJobs['list'], pages: () => pages };
}

test('the archive is bounded by results, bytes and pages of the list', async t => {
  const many = await chooseResults(pagesOfList('account', QUESTION, endless(1)));
  t.deepEqual([many.chosen.length, many.isCut], [ZIP_RESULTS_MAX, true]);
  t.is(new Set(many.chosen.map(({ name }) => name)).size, ZIP_RESULTS_MAX);
  const large = await chooseResults(pagesOfList('account', QUESTION, endless(50 * 1024 ** 2)));
  t.deepEqual([large.chosen.length, large.isCut], [40, true]);
  const expired = endless(null);
  const none = await chooseResults(pagesOfList('account', QUESTION, expired));
  t.deepEqual([none.chosen.length, none.isCut, expired.pages()], [0, true, 41]);
});
