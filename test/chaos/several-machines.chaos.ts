/** `make chaos` on a Galera cluster and a bucket. Needs: object-storage, removebg, mcp. */
import ava from 'ava';
import { openSeveralMachines } from '../fleet/ground.ts';
import { uniformPicture } from '../fleet/steady-load.ts';
import { galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { missingStore } from '../support/object-storage/object-store.ts';
import { describeStorm } from './fleet-storm.ts';
import { PLAIN, REMOVE_BG } from './manners.ts';

const KILLS = Number(process.env.MATTING_CHAOS_KILLS ?? 20);

describeStorm(
  ava.serial,
  'a fleet on several machines',
  galeraSkipReason() || missingStore('versitygw'),
  () => ({
    fleet: {
      controlPlanes: 2,
      nodes: 3,
      model: 'tiny',
      openGround: openSeveralMachines,
      env: { MATTING_SYNC_WAIT_MS: '3000', MATTING_REMOVEBG_WAIT_MS: '3000' },
    },
    kills: { 'control plane': 4 * KILLS, node: 3 * KILLS, store: 2 * KILLS, database: KILLS },
    ownModels: ['tiny-paced'],
    manners: [PLAIN, REMOVE_BG],
    picture: uniformPicture,
    hostileAccounts: 0,
  }),
);
