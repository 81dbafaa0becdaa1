/** Pages about what has expired and is not removed: by the database's fault, and by the storage's. */
import ava from 'ava';
import mysql, { type Connection } from 'mysql2/promise';
import { at } from '../support/at.ts';
import { SmallDisk, skipWithoutMounts } from '../support/small-disk.ts';
import { Installation, SKIP } from './installation.ts';
import { proceduresOn } from './procedures.ts';

const test = ava.serial;

/** More than a day and an hour. */
const PASSED_MS = 26 * 3_600_000;
const ENDED = `result_blob_expires_at is not null`;

const skip = SKIP || skipWithoutMounts();

const service = new Installation();
const procedure = proceduresOn(service, test, skip);
let disk: SmallDisk;
test.before(async () => {
  disk = SmallDisk.mount('64m');
});
service.use(test, () => ({ planes: 2, storage: disk.directory }));
test.after.always(async () => {
  disk?.remove();
});

/** The results that there are were made a day earlier, and have expired. */
const timePasses = () =>
  service.database.ask(
    `update matting.jobs set result_blob_expires_at = result_blob_expires_at - ${PASSED_MS}
       where ${ENDED}`,
  );

/** Somebody's transaction holds the rows that expired, until the connection ends. */
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
  await service.final(await service.submit());
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
  await plane.line('swept', { results: 1 });
  await page.isOver();
  other.start();
  await service.ready();
});

procedure('MattingSweepFails', async (page, t) => {
  await service.final(await service.submit());
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
