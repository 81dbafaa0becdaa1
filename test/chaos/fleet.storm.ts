/** A fleet on one server and one directory. Needs: object-storage, photoroom, rembg, removebg, mcp. */
import ava from 'ava';
import { openOneMachine } from '../fleet/ground.ts';
import { skipReason } from '../support/database.ts';
import { describeStorm } from './fleet-storm.ts';
import { discOf, MANNERS } from './manners.ts';

const KILLS_OF_EACH = Number(process.env.MATTING_CHAOS_KILLS ?? 2);

describeStorm(ava.serial, 'a fleet under kills', skipReason('mysql'), () => ({
  fleet: {
    controlPlanes: 2,
    nodes: 2,
    model: 'u2netp',
    openGround: openOneMachine,
    env: {
      // Short, so that many waits are handed over to jobs.
      MATTING_SYNC_WAIT_MS: '3000',
      MATTING_REMOVEBG_WAIT_MS: '3000',
      MATTING_COMPAT: 'photoroom,rembg',
      // The hostile accounts' servers have private addresses.
      MATTING_ALLOW_PRIVATE_ADDRESSES: 'true',
      MATTING_ALLOW_HTTP_CALLBACKS: 'true',
    },
  },
  kills: {
    'control plane': KILLS_OF_EACH,
    node: KILLS_OF_EACH,
    engine: KILLS_OF_EACH,
    'picture worker': KILLS_OF_EACH,
    database: KILLS_OF_EACH,
  },
  ownModels: ['u2netp'],
  manners: MANNERS,
  picture: discOf,
  hostileAccounts: 2,
}));
