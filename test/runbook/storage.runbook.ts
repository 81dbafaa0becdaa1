/** The page about a storage that fills: a small disk, until nothing fits on it, and then a larger one. */
import assert from 'node:assert/strict';
import { closeSync, openSync, writeSync } from 'node:fs';
import path from 'node:path';
import ava from 'ava';
import { at } from '../support/at.ts';
import { SmallDisk, skipWithoutMounts } from '../support/small-disk.ts';
import { Installation, pictureBase64, SKIP } from './installation.ts';
import { proceduresOn } from './procedures.ts';

const test = ava.serial;

const HOUR_MS = 3_600_000;
const PAGE_BYTES = 4096;

const skip = SKIP || skipWithoutMounts();

const service = new Installation();
const procedure = proceduresOn(service, test, skip);
let disk: SmallDisk;
test.before(async () => {
  disk = SmallDisk.mount('32m');
});
service.use(test, () => ({ storage: disk.directory }));
test.after.always(async () => {
  disk?.remove();
});

/** What others write to the same volume: the disk to its last page. */
function fill(): void {
  const file = openSync(path.join(disk.directory, 'of-others'), 'a');
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
  const [plane, node] = [at(service.planes, 0), at(service.nodes, 0)];
  const kept = await service.final(await service.submit());
  await page.fires();
  const du = page.taken('du -s inputs backgrounds results tmp');
  const sizes = await service.run(`cd "${disk.directory}" && ${du}`);
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
  t.regex(String(error?.detail), /the storage failed/);
  // The page of the job's image is free again.
  fill();
  await plane.restart();
  t.not(await plane.exited, 0);
  t.regex(plane.complaint, /ENOSPC|no space/i);
  disk.remount('size=12g');
  plane.start({ MATTING_RESULT_TTL_MS: String(HOUR_MS) });
  await service.ready();
  await page.isOver();
  const shorter = await service.final(await service.submit());
  const lifeMs = ({ result, finished_at }: typeof shorter) =>
    Date.parse(result?.expiresAt ?? '') - Date.parse(finished_at ?? '');
  t.true(lifeMs(shorter) <= HOUR_MS && lifeMs(kept) > HOUR_MS);
  t.is((await fetch(kept.result?.url ?? '')).status, 200);
});
