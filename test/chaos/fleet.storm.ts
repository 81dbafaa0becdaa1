/**
 * One server and one directory; programs use certificates. Needs: object-storage, photoroom, rembg,
 * removebg, mcp.
 */
import { writeFile } from 'node:fs/promises';
import path from 'node:path';
import ava from 'ava';
import { openOneMachine } from '../fleet/ground.ts';
import { TestAuthority } from '../support/certificates.ts';
import { skipReason } from '../support/database.ts';
import { describeStorm, OPERATOR_KEY } from './fleet-storm.ts';
import { discOf, MANNERS } from './manners.ts';

const KILLS_OF_EACH = Number(process.env.MATTING_CHAOS_KILLS ?? 2);

const SERVER_NAME = 'matting.internal';

async function openWithTls(directory: string) {
  const authority = new TestAuthority();
  const { cert, key } = authority.issue('fleet', [SERVER_NAME]);
  const at = (name: string) => path.join(directory, name);
  await writeFile(at('own.pem'), cert);
  await writeFile(at('own.key'), key);
  await writeFile(at('ca.pem'), authority.cert);
  const env = {
    MATTING_TLS_CERT_FILE: at('own.pem'),
    MATTING_TLS_KEY_FILE: at('own.key'),
    MATTING_TLS_CLIENT_CA_FILE: at('ca.pem'),
    MATTING_TLS_SERVER_CA_FILE: at('ca.pem'),
    MATTING_TLS_SERVER_NAME: SERVER_NAME,
  };
  return { ...(await openOneMachine(directory)), env };
}

describeStorm(ava.serial, 'a fleet under kills', skipReason('mysql'), () => ({
  fleet: {
    controlPlanes: 2,
    nodes: 2,
    model: 'u2netp',
    openGround: openWithTls,
    env: {
      MATTING_OPERATOR_KEY: OPERATOR_KEY,
      // Short, so that many waits end as jobs.
      MATTING_SYNC_WAIT_MS: '3000',
      MATTING_COMPAT: 'photoroom,rembg',
    },
  },
  kills: {
    'control plane': KILLS_OF_EACH,
    node: KILLS_OF_EACH,
    'stopped control plane': KILLS_OF_EACH,
    'stopped node': KILLS_OF_EACH,
    engine: KILLS_OF_EACH,
    'picture worker': KILLS_OF_EACH,
    database: KILLS_OF_EACH,
  },
  ownModels: ['u2netp'],
  manners: MANNERS,
  picture: discOf,
}));
