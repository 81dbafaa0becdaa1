/** Engines that no test runs on: each row is what their documentation says. */
import type { Engine } from './engine.ts';
import { MYSQL } from './servers.ts';

/** One writer; its readers refuse writes by 1290 or 1836, under the same cluster's name. */
export const AURORA: Engine = {
  ...MYSQL,
  name: 'Aurora',
  shownBy: 'documentation',
  isServer: variables => variables.has('aurora_version'),
  // The storage has every commit, whatever these say.
  settings: [],
};

/**
 * Pessimistic transactions lock rows for the whole database, and reads come from one timestamp;
 * now() is each server's own.
 */
export const TIDB: Engine = {
  ...MYSQL,
  name: 'TiDB',
  shownBy: 'documentation',
  isServer: variables => /tidb/i.test(variables.get('version') ?? ''),
  session: [`set session tidb_txn_mode = 'pessimistic'`],
  members: 'several',
  readOnlyTransactions: false,
  settings: [
    {
      variable: 'tidb_enable_check_constraint',
      value: 'ON',
      warning: 'the database ignores CHECK constraints. Set it to ON before the first start',
    },
  ],
  errorCodes: {
    8002: 'conflict', // a locked row has changed
    8005: 'conflict', // write conflict
    8022: 'conflict', // the commit failed and was rolled back
    8027: 'connection', // this server's knowledge of the tables is too old
    8028: 'conflict', // the tables have changed
    8501: 'connection', // the commit's end is not determined
    9001: 'connection', // PD did not answer
    9002: 'connection', // TiKV did not answer
    9003: 'connection', // TiKV is busy
    9004: 'conflict', // locks could not be resolved
    9005: 'connection', // a region has no leader
    9006: 'conflict', // the transaction lived longer than what it reads
    9007: 'conflict', // write conflict in TiKV
  },
};

/** gRPC codes within vtgate's messages: a tablet that is away, or no primary any more. */
const VITESS_AWAY = /\b(Unavailable|FailedPrecondition|DeadlineExceeded|CLUSTER_EVENT)\b/i;

/** An unsharded keyspace, asked for at its primary; now() is the tablet's own. */
export const VITESS: Engine = {
  ...MYSQL,
  name: 'Vitess',
  shownBy: 'documentation',
  isServer: variables => /vitess/i.test(variables.get('version') ?? ''),
  members: 'several',
  readOnlyTransactions: false,
  errorCodes: {
    1105: message => (VITESS_AWAY.test(message) ? 'connection' : 'other'), // ER_UNKNOWN_ERROR
  },
};
