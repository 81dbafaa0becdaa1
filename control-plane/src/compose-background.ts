/**
 * Makes what works without being asked: notifications and mails are delivered, balances looked at,
 * what nobody can reach any more cleared away. Opens nothing.
 */
import type { Logger } from 'pino';
import type { Tracing } from '#program/tracing/span.ts';
import type { Config } from './config.ts';
import type { ControlMetrics } from './metrics.ts';
import type { Fleet } from './nodes/fleet.ts';
import type { CallbackSecrets } from './secrets/callback-secret.ts';
import { BalanceWatch } from './services/alerts/balance-watch.ts';
import { MailDelivery } from './services/alerts/mail-delivery.ts';
import type { MailSender } from './services/alerts/mail-sender.ts';
import { alertSweepSteps } from './services/alerts/sweep-alerts.ts';
import { withheldTeller } from './services/alerts/withheld-messages.ts';
import { ClockWatch } from './services/clock-watch.ts';
import { FleetSizing } from './services/fleet-size/fleet-sizing.ts';
import type { JobEvents } from './services/job-events.ts';
import { WebhookDelivery } from './services/notification/deliver-webhooks.ts';
import { peopleSweepSteps } from './services/people/sweep-people.ts';
import { resultLookStep } from './services/reading/look-over-results.ts';
import type { LostResults } from './services/reading/lost-results.ts';
import { Sweeper } from './services/sweeping/sweep.ts';
import { GuardedPost } from './sources/guard/guarded-post.ts';
import type { OutgoingGuard } from './sources/guard/outgoing-guard.ts';
import type { BlobStore } from './storage/blob-store.ts';
import type { Stores } from './store/stores.ts';

export interface BackgroundParts {
  readonly config: Config;
  readonly log: Logger;
  readonly replicaId: string;
  readonly stores: Stores;
  readonly blobs: BlobStore;
  readonly secrets: CallbackSecrets;
  readonly events: JobEvents;
  readonly guard: OutgoingGuard;
  readonly metrics: ControlMetrics;
  /** Absent: there is no mail server. */
  readonly mailSender?: MailSender | undefined;
  readonly fleet: Fleet;
  readonly losses: Pick<LostResults, 'judge'>;
  /** Jobs held here. */
  readonly running: () => number;
  /** Absent: there are no traces. */
  readonly tracing?: Tracing | undefined;
}

export interface Background {
  readonly delivery: WebhookDelivery;
  /** Undefined: the fleet does not sleep. */
  readonly fleetSizing: FleetSizing | undefined;
  readonly clockWatch: ClockWatch;
  start(): void;
  /** All but `delivery`, which the drain ends by itself. */
  stopRest(): Promise<void>;
}

export function composeBackground(parts: BackgroundParts): Background {
  const delivery = composeDelivery(parts);
  const fleetSizing = composeFleetSizing(parts);
  const clockWatch = new ClockWatch({ look: () => parts.stores.compareClocks(), log: parts.log });
  const loops: { start(): void; stop(): Promise<void> }[] = [
    composeWatch(parts),
    ...composeMails(parts),
    composeSweeper(parts),
    clockWatch,
  ];
  if (fleetSizing !== undefined) loops.push(fleetSizing);
  return {
    delivery,
    fleetSizing,
    clockWatch,
    start() {
      delivery.start();
      for (const loop of loops) loop.start();
    },
    async stopRest() {
      await Promise.all(loops.map(loop => loop.stop()));
    },
  };
}

function composeDelivery(parts: BackgroundParts): WebhookDelivery {
  const { config, stores, secrets, events, guard, metrics, log, replicaId } = parts;
  return new WebhookDelivery({
    outbox: stores.webhookOutbox,
    guardedPost: new GuardedPost({ guard, policy: config }),
    secrets,
    events,
    observer: metrics,
    log,
    holder: replicaId,
    scheduleMs: config.webhookScheduleMs,
    tracing: parts.tracing,
  });
}

function composeWatch(parts: BackgroundParts): BalanceWatch {
  const { config, stores, secrets, metrics, log, mailSender } = parts;
  return new BalanceWatch({
    alerts: stores.alerts,
    settings: stores.alertSettings,
    secrets,
    mails: mailSender !== undefined,
    pageUrl: `${config.baseUrl}/account`,
    observer: metrics,
    messagesMax: config.accountMails,
    onWithheld: withheldTeller(metrics, log),
    log,
  });
}

function composeFleetSizing(parts: BackgroundParts): FleetSizing | undefined {
  const { config, stores, fleet, running, events, log, replicaId } = parts;
  if (config.onDemand === undefined) return undefined;
  return new FleetSizing({
    jobs: stores.jobs,
    playground: stores.playground,
    reports: stores.fleetReports,
    policy: config.onDemand,
    replica: replicaId,
    ...{ fleet, running, events, log },
  });
}

/** None where there is no mail server: what waits then is left to a replica that has one. */
function composeMails(parts: BackgroundParts): MailDelivery[] {
  const { stores, secrets, metrics, log, replicaId, mailSender } = parts;
  if (mailSender === undefined) return [];
  const sending = { sender: mailSender, outbox: stores.mailOutbox, secrets, observer: metrics };
  return [new MailDelivery({ ...sending, log, holder: replicaId })];
}

function composeSweeper(parts: BackgroundParts): Sweeper {
  const { config, stores, blobs, losses, metrics, log, replicaId } = parts;
  const { jobRetentionMs } = config;
  return new Sweeper({
    jobStore: stores.jobs,
    outbox: stores.webhookOutbox,
    blobStore: blobs,
    sweeps: stores.sweeps,
    others: [
      {
        name: 'old usage',
        page: async size => {
          const done = await stores.usage.removeOld(size);
          return { done, more: done === size };
        },
      },
      ...alertSweepSteps(stores, jobRetentionMs),
      ...peopleSweepSteps(stores.people),
      resultLookStep({ lostResults: stores.lostResults, losses, blobs }),
    ],
    holder: replicaId,
    jobRetentionMs,
    logger: log,
    onFailure: () => metrics.sweepFailed(),
  });
}
