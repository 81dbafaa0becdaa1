/** The page about a database whose members' clocks differ: a Galera cluster, one member's machine ahead. */
import { chmodSync, globSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import ava from 'ava';
import { series } from '../../control-plane/test/fixtures.ts';
import { at } from '../support/at.ts';
import { createTestDatabase, type TestDatabase } from '../support/database.ts';
import { urlOfPort } from '../support/databases/cluster.ts';
import { GaleraCluster, galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { roundRobin, TcpProxy } from '../support/databases/tcp-proxy.ts';
import { Installation, SKIP } from './installation.ts';
import { proceduresOn } from './procedures.ts';

const test = ava.serial;

/** The member whose clock can be set. */
const WRONG = 1;
const AHEAD_S = 5;
/** Debian's library shifts what a process takes for the time, by a file. */
const [LIBFAKETIME] = globSync('/usr/lib/*/faketime/libfaketimeMT.so.1');

const skip =
  SKIP ||
  galeraSkipReason() ||
  (LIBFAKETIME === undefined && 'no libfaketime here: install libfaketime');

const service = new Installation();
const procedure = proceduresOn(service, test, skip);
let cluster: GaleraCluster;
let proxy: TcpProxy;
let database: TestDatabase;
let directory: string;
test.before(async () => {
  directory = mkdtempSync(path.join(tmpdir(), 'matting-clock-'));
  // Members are another user's processes.
  chmodSync(directory, 0o755);
  setClock(0);
  const env = [
    `LD_PRELOAD=${LIBFAKETIME}`,
    `FAKETIME_TIMESTAMP_FILE=${clockFile()}`,
    'FAKETIME_CACHE_DURATION=1',
    'FAKETIME_DONT_FAKE_MONOTONIC=1',
  ];
  cluster = await GaleraCluster.create({
    size: 2,
    envOf: index => (index === WRONG ? env : []),
  });
  proxy = await TcpProxy.open(roundRobin(cluster.members.map(({ port }) => port)));
  database = await createTestDatabase('mysql', { series, server: urlOfPort(proxy.port) });
  // Programs and commands use the cluster; the installation's own database gets no request.
});
service.use(test, () => ({ env: { MATTING_DATABASE_URL: database.url } }));
test.after.always(async () => {
  await database?.close();
  await proxy?.close();
  await cluster?.close();
  rmSync(directory, { recursive: true, force: true });
});

const clockFile = () => path.join(directory, 'clock');

/** Sets the clock as its administrator would, or a daemon that is mended. */
function setClock(aheadS: number): void {
  writeFileSync(clockFile(), `+${aheadS}`, { mode: 0o644 });
}

procedure('MattingDatabaseClocksDiffer', async (page, t) => {
  const plane = at(service.planes, 0);
  const wrong = at(cluster.members, WRONG);
  setClock(AHEAD_S);
  await page.fires();
  const { msg } = await plane.line(/^the clock of .* is .* ahead of /);
  t.true(msg.includes(`:${wrong.port} is `), msg);
  await service.cutOut();
  await plane.restart();
  t.not(await plane.exited, 0);
  t.regex(plane.complaint, /synchronise the clocks/);
  setClock(0);
  await service.until('it starts', async () => {
    if (!plane.running) plane.start();
    return (await fetch(`${plane.baseUrl}/readyz`)).ok;
  });
  await page.isOver();
  await plane.line('listening');
  setClock(AHEAD_S);
  await page.fires();
  await wrong.stop();
  await page.isOver();
  await service.cutOut();
});
