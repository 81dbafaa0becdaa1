/** Pages about disks of the storage. */
import assert from 'node:assert/strict';
import { closeSync, openSync, writeSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import mysql, { type Connection } from 'mysql2/promise';
import { at } from '../support/at.ts';
import { SmallDisk, skipWithoutMounts } from '../support/small-disk.ts';
import { Installation, pictureBase64, SKIP } from './installation.ts';
import { proceduresOn } from './procedures.ts';

const test = ava.serial;

const HOUR_MS = 3_600_000;
const PAGE_BYTES = 4096;
/** More than a day and an hour. */
const PASSED_MS = 26 * HOUR_MS;
const ENDED = `result_blob_expires_at is not null`;

const skip = SKIP || skipWithoutMounts();

const service = new Installation();
const procedure = proceduresOn(service, test, skip);
let disk: SmallDisk;
let small: SmallDisk;
test.before(async () => {
  disk = SmallDisk.mount('64m');
  small = SmallDisk.mount('32m');
});
service.use(test, () => ({ planes: 2, storage: disk.directory }));
test.after.always(async () => {
  disk?.remove();
  small?.remove();
});

/** The results that there are were made a day earlier, and have expired. */
const timePasses = () =>
  service.database.ask(
    `update matting.jobs set result_blob_expires_at = result_blob_expires_at - ${PASSED_MS}
       where ${ENDED}`,
  );

async function holdRows(): Promise<Connection> {
  const { socket } = service.database.server;
  const holding = await mysql.createConnection({ socketPath: socket, user: 'root' });
  await holding.query('begin');
  await holding.query(`select id from matting.jobs where ${ENDED} for update`);
  return holding;
}

const isSweeping = () =>
  service.until('a replica holds the lease', async () => {
    const [row] = await service.database.ask('select lease_holder from matting.sweeps');
    return row?.lease_holder !== null;
  });

procedure('MattingSweepOverdue', async (page, t) => {
  const [plane, other] = [at(service.planes, 0), at(service.planes, 1)];
  await service.cutOut();
  for (const each of service.planes) await each.stop();
  await timePasses();
  const holding = await holdRows();
  for (const each of service.planes) each.start();
  const [firing] = await page.fires();
  t.is(firing?.step, 'results');
  const msg = 'a sweep step failed';
  const step = 'expired results';
  await Promise.race([plane.line(msg, { step }), other.line(msg, { step })]);
  // Who holds the lease dies with it.
  await isSweeping();
  for (const each of service.planes) await each.kill();
  holding.destroy();
  plane.start();
  // A result and its thumbnail.
  await plane.line('swept', { results: 2 });
  await page.isOver();
  other.start();
  await service.ready();
});

procedure('MattingSweepFails', async (page, t) => {
  await service.cutOut();
  await service.until('it is read-only', () => {
    disk.remount('ro');
    return true;
  });
  await timePasses();
  await page.fires();
  const lines = service.planes.map(plane => plane.line('a sweep step failed'));
  const { step, err } = await Promise.race(lines);
  t.regex(String(step), /^remove results\//);
  t.regex(JSON.stringify(err), /EROFS/);
  disk.remount('rw');
  await service.ready();
  await page.isOver();
});

/** What others write to the same volume: the disk to its last page. */
function fill(): void {
  const file = openSync(path.join(small.directory, 'of-others'), 'a');
  const page = Buffer.alloc(PAGE_BYTES, 1);
  try {
    for (;;) writeSync(file, page);
  } catch (error) {
    assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
  } finally {
    closeSync(file);
  }
}

procedure('MattingStorageNearlyFull', async (page, t) => {
  await service.reopen({ storage: small.directory });
  const [plane, node] = [at(service.planes, 0), at(service.nodes, 0)];
  const kept = await service.cutOut();
  await page.fires();
  const du = page.taken('du -s inputs backgrounds results tmp');
  const sizes = await service.run(`cd "${small.directory}" && ${du}`);
  t.regex(sizes.out, /^[1-9]\d*\tresults$/m, sizes.err);
  // Its image is there, and its result will find no place.
  await node.stop();
  await service.ready(0);
  const jobId = await service.submit();
  fill();
  const refused = await service.post({ image_base64: await pictureBase64() });
  t.deepEqual([refused.status, refused.job.retryable], [503, true]);
  node.start();
  const { status, error, credits } = await service.final(jobId);
  t.deepEqual([status, error?.retryable, credits.charged], ['failed', true, 0]);
  t.regex(String(error?.detail), /\bstorage\b/i);
  // The page of the job's image is free again.
  fill();
  await plane.restart();
  t.not(await plane.exited, 0);
  t.regex(plane.complaint, /ENOSPC|no space/i);
  small.remount('size=12g');
  plane.start({ MATTING_RESULT_TTL_MS: String(HOUR_MS) });
  await service.ready();
  await page.isOver();
  const shorter = await service.cutOut();
  const lifeMs = ({ result, finished_at }: typeof shorter) =>
    Date.parse(result?.expiresAt ?? '') - Date.parse(finished_at ?? '');
  t.true(lifeMs(shorter) <= HOUR_MS && lifeMs(kept) > HOUR_MS);
  t.is((await fetch(kept.result?.url ?? '')).status, 200);
});
