import { execFileSync } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import {
  existsSync,
  mkdtempSync,
  readdirSync,
  rmdirSync,
  rmSync,
  statfsSync,
  writeFileSync,
} from 'node:fs';
import { rename } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { until } from '@matting/core/test/harness.ts';
import { type Caller, pictureBody, type RestAnswer } from '@matting/core/test/support/replicas.ts';
import { pngHeader } from '@matting/core/test/support/test-app.ts';
import { openDatabase } from '@matting/database/connect.ts';
import type { Database } from '@matting/database/database.ts';
import type { Script } from '@matting/nodes/test/scripted-exchange.ts';
import {
  groupIf,
  SILENT_LOG,
  skipReason,
  type TestDatabase,
} from '@matting/test-support/database.ts';
import { SmallDisk, skipWithoutMounts } from '@matting/test-support/small-disk.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { Replicas } from '../programs.ts';

const test = ava.serial;

const JOBS = '/v1/matting/jobs';
const DISK_BYTES = 256 * 1024;
const BURST = 40;
const SHARE = 2;
/** InnoDB refreshes its list of transactions only if it was not read for this long. */
const INNODB_TRX_REFRESH_MS = 200;

const hasMounts = skipWithoutMounts() === false;
const disk = hasMounts ? SmallDisk.mount(String(DISK_BYTES)) : undefined;

/** Storage on the small disk; no node until the tests of the database's file. */
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
    rmSync(filler);
  },
);

function fill(directory: string, leaving: number): () => void {
  const filler = path.join(directory, `filler-${randomUUID()}`);
  const { bavail, bsize } = statfsSync(directory);
  writeFileSync(filler, Buffer.alloc(bavail * bsize - leaving));
  return () => rmSync(filler);
}

function databaseOf(url: string): TestDatabase {
  const opened: Database[] = [];
  return {
    dialect: 'sqlite',
    url,
    async open() {
      const database = await openDatabase(url, { log: SILENT_LOG });
      opened.push(database);
      return database;
    },
    close: async () => void (await Promise.all(opened.map(database => database.close()))),
  };
}

const storageFull = async (replicas: Replicas) => {
  const answer = await fetch(replicas.url(0, '/readyz'));
  return /storage is full/.test(await answer.text());
};

test.runIf(hasMounts)(
  'a disk without room for a result makes its job wait, and /readyz names it',
  async t => {
    const small = SmallDisk.mount('1m');
    t.teardown(() => small.remove());
    const replicas = await Replicas.open('sqlite', { replicas: 1, storageDir: small.directory });
    t.teardown(() => replicas.close());
    let attempts = 0;
    const script: Script = async exchange => {
      attempts += 1;
      exchange.admit();
      await exchange.receive();
      if (attempts === 1) makeRoom = fill(small.directory, 80_000);
      exchange.answer(Buffer.alloc(150_000, 7));
    };
    let makeRoom = (): void => undefined;
    await replicas.addNode({ script });
    const caller = await replicas.createCaller(1);
    const made = await replicas.post(caller, pictureBody(), { path: JOBS });
    await until(() => attempts === 1, 'the attempt');
    const more = fill(small.directory, 0);
    await until(() => storageFull(replicas), 'the full disk to be named');
    const { metrics } = replicas.plane(0).ports;
    const page = await (await fetch(`http://127.0.0.1:${metrics}/metrics`)).text();
    t.regex(page, /^matting_control_unready\{cause="storage-full"\} 1$/m);
    const statusOf = async () =>
      (await replicas.get(caller, `${JOBS}/${made.body.job_id}`)).body.status;
    t.is(await statusOf(), 'processing', 'it is tried again');
    makeRoom();
    more();
    await until(async () => (await statusOf()) === 'succeeded', 'the job to have its room');
    t.false(await storageFull(replicas));
    const balances = await replicas.stores.ledger.balances(caller.accountId);
    t.deepEqual(balances, { available: 0, reserved: 0 });
  },
);

test.runIf(hasMounts)(
  'a control plane starts on a full disk with its database, and results are read and deleted',
  async t => {
    const big = SmallDisk.mount('256m');
    t.teardown(() => big.remove());
    const file = path.join(big.directory, 'matting.sqlite');
    const open = () => {
      const database = databaseOf(`sqlite:${file}`);
      return Replicas.open('sqlite', { replicas: 1, storageDir: big.directory, database });
    };
    const first = await open();
    await first.addNode();
    const caller = await first.createCaller(2);
    const made = await first.post(caller, pictureBody());
    t.is(made.status, 200, JSON.stringify(made.body));
    await until(() => existsSync(`${file}-spare`), 'the spare room');
    await first.close();
    const makeRoom = fill(big.directory, 0);
    const again = await open();
    t.teardown(() => again.close());
    t.true(await storageFull(again));
    const link = await again.download(0, made.body.result.url);
    t.is(link.status, 200);
    const refused = await again.post(caller, pictureBody(), { path: JOBS });
    t.is(refused.status, 503);
    const job = again.url(0, `${JOBS}/${made.body.job_id}`);
    const headers = { authorization: `Bearer ${caller.token}`, 'idempotency-key': 'delete' };
    t.true((await fetch(job, { method: 'DELETE', headers })).ok);
    t.is((await again.download(0, made.body.result.url)).status, 410);
    t.false(existsSync(`${file}-spare`));
    makeRoom();
    await until(() => existsSync(`${file}-spare`), 'the spare room again');
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

/** @returns makes it writable again */
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

// SQLite's only writer does not wait while it holds a row.
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
