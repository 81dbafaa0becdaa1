/**
 * Every method of the stores, and whether it changes something. For each that does: how a call of
 * it is arranged, what must hold when its answer was lost, and what a late call does.
 */
import type { Database } from '../../src/store/database/connect.ts';
import type { Stores } from '../../src/store/stores.ts';

/** Where a call is arranged, by stores that lose nothing. */
export interface Fixture {
  readonly stores: Stores;
  readonly database: Database;
}

export interface Arranged {
  /** The call; made again, as its caller would, where the database stayed away. */
  readonly act: (stores: Stores, database: Database) => Promise<unknown>;
  /**
   * Nothing was lost, nothing done twice.
   * @param outcome of the last call
   * @param repeated the first one rejected
   */
  readonly check: (outcome: unknown, repeated: boolean) => Promise<void>;
}

export interface LateCall {
  /** By somebody whose time is over. */
  readonly act: (stores: Stores) => Promise<unknown>;
  /** What it is told. Whatever the tables hold must be as it was. */
  readonly told: unknown;
}

export interface ChangingMethod {
  /** `<store>.<method>`. */
  readonly name: string;
  /** What tells it from another call of the same method. */
  readonly which?: string;
  /** It reads all rows: its database is its own. */
  readonly alone?: boolean;
  readonly arrange: (fixture: Fixture) => Promise<Arranged>;
  /** Absent: it carries no lease and no claim, whenever it comes it means the same. */
  readonly late?: (fixture: Fixture) => Promise<LateCall>;
}

/** Methods that change nothing. */
export const READING_METHODS: readonly string[] = [
  'accounts.find',
  'accounts.findByNameOrId',
  'accounts.list',
  'accounts.namesOf',
  'accounts.page',
  'audit.list',
  'apiKeys.authenticate',
  'apiKeys.find',
  'apiKeys.list',
  'apiKeys.listNewest',
  'apiKeys.recall',
  'jobs.find',
  'jobs.findFinal',
  'jobs.findForKey',
  'jobs.findByIdempotencyKey',
  'jobs.findByResultToken',
  'jobs.listLanes',
  'jobs.listClaimable',
  'jobs.list',
  'jobs.openOf',
  'jobs.queued',
  'jobs.doneWithin',
  'jobs.referencedBlobs',
  'ledger.balances',
  'ledger.lastAudits',
  'ledger.list',
  'links.find',
  'links.listOpen',
  'lostResults.known',
  'lostResults.neighbours',
  'lostResults.live',
  'lostResults.open',
  'lostResults.dueLook',
  'fleetReports.list',
  'nodes.listLive',
  'nodes.listAll',
  'nodes.find',
  'playground.findKey',
  'playground.openJobs',
  'playground.usage',
  'orders.details',
  'orders.find',
  'orders.list',
  'people.find',
  'people.findByMail',
  'people.listMembers',
  'rateQuotas.nowMs',
  'secretsCanary.find',
  'sessions.list',
  'sweeps.backlog',
  'alerts.look',
  'alerts.owners',
  'alertSettings.read',
  'alertSettings.webhook',
  'alertSettings.listSealedWithOthers',
  'usage.read',
  'usage.total',
  'usage.today',
  'outbox.listDue',
  'outbox.due',
  'outbox.mailsWaiting',
  'outbox.countSealedWithOthers',
  'outbox.list',
  // Its write matches no row.
  'check',
  'compareClocks',
  'close',
];

/** Methods that change what another does, by the same code. */
export const LIKE_ANOTHER: Readonly<Record<string, string>> = {
  'ledger.check': 'ledger.audit',
  'ledger.credits': 'ledger.audit',
};
