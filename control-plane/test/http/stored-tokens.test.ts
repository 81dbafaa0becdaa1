/** Who reads the database, or a backup of it, downloads no result. */
import { randomUUID } from 'node:crypto';
import { DatabaseSync } from 'node:sqlite';
import ava from 'ava';
import { imageBody, useTestApp } from '../support/test-app.ts';

const test = ava.serial;

const FILE = Buffer.from('0123456789');
const JOBS = '/v1/matting/jobs';
const CALLBACK = {
  callback_url: 'https://receiver.example/hook',
  callback_secret: 'a secret of 24 characters',
};

const app = useTestApp(test);
let link: string;
let jobId: string;
test.before(async () => {
  const key = { 'idempotency-key': randomUUID() };
  jobId = (await app.post(JOBS, imageBody(CALLBACK), key)).json().job_id;
  const { token } = await app.succeedJob(jobId, FILE);
  link = `/v1/results/${token}`;
});

/** Every value of every row. */
function values(): string[] {
  const database = new DatabaseSync(app.databaseFile, { readOnly: true });
  const found: string[] = [];
  const tables = database.prepare("select name from sqlite_master where type = 'table'").all();
  for (const { name } of tables) {
    for (const row of database.prepare(`select * from "${name}"`).all()) {
      for (const value of Object.values(row)) {
        found.push(
          value instanceof Uint8Array ? Buffer.from(value).toString('latin1') : `${value}`,
        );
      }
    }
  }
  database.close();
  return found;
}

test('opens nothing, and is no part of the link', async t => {
  t.deepEqual((await app.app.inject(link)).rawPayload, FILE);
  const token = link.slice('/v1/results/'.length);
  const stored = values();
  t.true(stored.some(value => value.includes(jobId)));
  t.deepEqual(
    stored.filter(value => value.includes(token)),
    [],
  );
  const words = new Set(stored.flatMap(value => value.match(/[A-Za-z0-9_-]{16,128}/g) ?? []));
  t.true(words.size > 10);
  for (const word of words) {
    const answer = await app.app.inject(`/v1/results/${word}`);
    t.is(answer.statusCode, 404, word);
  }
});

test('still shows the same link on every read', async t => {
  for (let times = 0; times < 2; times += 1) {
    const { url } = (await app.get(`${JOBS}/${jobId}`)).json().result;
    t.is(new URL(url).pathname, link);
  }
});
