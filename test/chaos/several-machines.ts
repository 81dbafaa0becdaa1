/**
 * A cluster and a bucket whose parts are killed, frozen and shut down. Needs: object-storage,
 * removebg, mcp.
 */
import ava from 'ava';
import { openSeveralMachines } from '../fleet/ground.ts';
import { uniformPicture } from '../fleet/steady-load.ts';
import type { DatabaseCluster } from '../support/databases/cluster.ts';
import { missingStore } from '../support/object-storage/object-store.ts';
import { describeStorm, OPERATOR_KEY } from './fleet-storm.ts';
import { PLAIN, REMOVE_BG } from './manners.ts';

const KILLS = Number(process.env.MATTING_CHAOS_KILLS ?? 20);
/** Promised for a fail-over. */
const STANDSTILL_MS_MAX = 30_000;

export function describeSeveralMachines(
  name: string,
  skip: string | false,
  openCluster: () => Promise<DatabaseCluster>,
): void {
  describeStorm(ava.serial, name, skip || missingStore('versitygw'), () => ({
    fleet: {
      controlPlanes: 2,
      nodes: 3,
      model: 'tiny',
      openGround: () => openSeveralMachines(openCluster),
      env: {
        MATTING_SYNC_WAIT_MS: '3000',
        MATTING_OPERATOR_KEY: OPERATOR_KEY,
      },
    },
    kills: {
      'control plane': 4 * KILLS,
      node: 3 * KILLS,
      'stopped control plane': KILLS,
      'stopped node': KILLS,
      store: 2 * KILLS,
      database: KILLS,
    },
    ownModels: ['tiny-paced'],
    manners: [PLAIN, REMOVE_BG],
    picture: uniformPicture,
    standstillMsMax: STANDSTILL_MS_MAX,
  }));
}
