/** A replica whose disk or database fails. */
import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, readdirSync, rmdirSync, writeFileSync } from 'node:fs';
import { rename } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { until } from '@matting/core/test/harness.ts';
import { type Caller, pictureBody, type RestAnswer } from '@matting/core/test/support/replicas.ts';
import { pngHeader } from '@matting/core/test/support/test-app.ts';
import { groupIf, skipReason } from '@matting/test-support/database.ts';
import { SmallDisk, skipWithoutMounts } from '@matting/test-support/small-disk.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { Replicas } from '../programs.ts';

const test = ava.serial;

const JOBS = '/v1/matting/jobs';
const DISK_BYTES = 256 * 1024;
const BURST = 40;
const SHARE = 2;
/** InnoDB answers from the same copy of its transactions for as long as it is asked more often. */
const INNODB_TRX_REFRESH_MS = 200;

const hasMounts = skipWithoutMounts() === false;
const disk = hasMounts ? SmallDisk.mount(String(DISK_BYTES)) : undefined;

/** Storage on the small disk, and no node before the tests of the database's file. */
const onFile = Replicas.use(test, 'sqlite', {
  replicas: 1,
  ...(disk && { storageDir: disk.directory }),
});
test.after.always(() => disk?.remove());

test.runIf(hasMounts)(
  'a full disk refuses the input with 503 and reserves nothing; with room it goes on',
  async t => {
    const directory = disk?.directory ?? '';
    const caller = await onFile.createCaller(1);
    const key = randomUUID();
    const submit = (bytes: number) => {
      const picture = Buffer.concat([pngHeader(4, 3), Buffer.alloc(bytes, 7)]);
      return onFile.post(caller, { image_base64: picture.toString('base64') }, { key, path: JOBS });
    };
    const refused = await submit(2 * DISK_BYTES);
    t.is(refused.status, 503, JSON.stringify(refused.body));
    t.is(refused.body.code, 'SERVICE_UNAVAILABLE');
    t.true(refused.body.retryable);
    t.true(Number(refused.headers.get('retry-after')) > 0);
    t.deepEqual(await onFile.stores.ledger.balances(caller.accountId), {
      available: 1,
      reserved: 0,
    });
    const reserves = await onFile.stores.ledger.list(caller.accountId, {
      kind: 'reserve',
      limit: 1,
    });
    t.deepEqual(reserves, []);
    const files = readdirSync(directory, { recursive: true, withFileTypes: true });
    t.deepEqual(
      files.filter(file => file.isFile()).map(({ name }) => name),
      [],
    );
    const accepted = await submit(1000);
    t.is(accepted.status, 202, 'the key was not remembered, and there is room again');
    const filler = path.join(directory, 'filler');
    t.throws(() => writeFileSync(filler, Buffer.alloc(DISK_BYTES)), { message: /ENOSPC/ });
    const joined = await submit(1000);
    t.is(joined.status, 202, 'who joins needs no room');
    t.is(joined.body.job_id, accepted.body.job_id);
    t.is((await submit(1001)).body.code, 'IDEMPOTENCY_CONFLICT');
  },
);

const isUnready = () => onFile.isUnready(0);
const file = () => onFile.databaseUrl.slice('sqlite:'.length);

test('a database file that is gone shows in /readyz, and so does its return', async t => {
  await onFile.addNode();
  await rename(file(), `${file()}.away`);
  await until(isUnready, 'unreadiness');
  await rename(`${file()}.away`, file());
  await t.notThrowsAsync(until(async () => !(await isUnready()), 'readiness'));
});

/** @returns what makes it writable again */
function mountReadOnly(directory: string): () => void {
  execFileSync('mount', ['--bind', directory, directory], { stdio: 'pipe' });
  execFileSync('mount', ['-o', 'remount,bind,ro', directory], { stdio: 'pipe' });
  return () => execFileSync('umount', [directory]);
}

function mayMount(): boolean {
  const directory = mkdtempSync(path.join(tmpdir(), 'matting-mount-'));
  try {
    mountReadOnly(directory)();
    return true;
  } catch (error) {
    console.error(`nothing could be mounted: ${(error as Error).message.trim()}`);
    return false;
  } finally {
    rmdirSync(directory);
  }
}

test.runIf(mayMount())(
  'a database file whose directory is read-only shows in /readyz and the metrics',
  async t => {
    const unmount = mountReadOnly(path.dirname(file()));
    try {
      await until(isUnready, 'unreadiness');
      const { metrics } = onFile.plane(0).ports;
      const page = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text();
      t.regex(page, /^matting_control_unready\{cause="database"\} 1$/m);
    } finally {
      unmount();
    }
    await until(async () => !(await isUnready()), 'readiness');
  },
);

// SQLite has no such row: one connection writes, and nobody holds it while it waits.
const locked = groupIf(skipReason('mysql') === false, test, 'a row that is locked');
const replicas = Replicas.use(locked, 'mysql', {
  replicas: 1,
  databaseUrl: async url => `${url}${url.includes('?') ? '&' : '?'}connection-limit=4`,
});
let hostile: Caller;
let good: Caller;

locked.before(async () => {
  await replicas.addNode();
  hostile = await replicas.createCaller(1000);
  good = await replicas.createCaller(100);
});

locked('leaves the others connections: an account holds its share and no more', async t => {
  const burst: Promise<RestAnswer>[] = [];
  let answered = 0;
  await replicas.database.kysely.transaction().execute(async lock => {
    await lock
      .selectFrom('accounts')
      .select('id')
      .where('id', '=', hostile.accountId)
      .forUpdate()
      .execute();
    for (let count = 0; count < BURST; count += 1) {
      const answer = replicas.post(hostile, pictureBody(), { path: JOBS });
      void answer.then(() => {
        answered += 1;
      });
      burst.push(answer);
    }
    const waiting = async () => {
      await delay(INNODB_TRX_REFRESH_MS);
      const { rows } = await sql<{ n: number }>`select count(*) as n
        from information_schema.innodb_trx where trx_state = 'LOCK WAIT'`.execute(
        replicas.database.kysely,
      );
      return Number(rows[0]?.n) >= SHARE;
    };
    await until(waiting, 'its submissions to wait for the row');
    const made = await replicas.post(good, pictureBody());
    t.is(made.status, 200, JSON.stringify(made.body));
    const read = await replicas.get(good, `${JOBS}/${made.body.job_id}`);
    t.is(read.status, 200, JSON.stringify(read.body));
    t.is(answered, 0, 'the row is locked, and theirs came first');
  });
  for (const { status, body } of await Promise.all(burst)) {
    t.is(status, 202, JSON.stringify(body));
  }
});
