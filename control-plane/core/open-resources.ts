import { databaseCertificates, openCurrentDatabase } from '@matting/database/connect.ts';
import type { OutgoingGuard } from '@matting/http/outgoing/outgoing-guard.ts';
import { NODE_TIMING } from '@matting/nodes/registry-server.ts';
import { warnOfEnds } from '@matting/program/tls/certificate-ends.ts';
import { TlsFiles } from '@matting/program/tls/tls-files.ts';
import type { NodeTokens } from '@matting/program/tokens.ts';
import type { Tracing } from '@matting/program/tracing/active-span.ts';
import { LEASE_TIMING } from '@matting/queue/lease-rules.ts';
import type { SettledObserver } from '@matting/queue/settled-steps.ts';
import { openStorages } from '@matting/storage/open-storage.ts';
import type { StorageObserver } from '@matting/storage/storage-kind.ts';
import type { Logger } from 'pino';
import type { Config } from './config.ts';
import type { ControlMetrics } from './metrics/control-metrics.ts';
import { type About, migrationsOf, stepsOf } from './package.ts';
import type { MattingEndOptions, SettledMattingStep } from './queue/matting-ends.ts';
import type { JobEvents } from './results/job-events.ts';
import { JobViews } from './results/job-view.ts';
import { ResultTokens } from './results/result-tokens.ts';
import { CallbackSecrets, notificationBody, SecretBox } from './secrets/secret-box.ts';
import { loadOrCreateSecretsKey } from './secrets/secrets-key.ts';
import { createStores } from './stores.ts';
import { renderOutboxBody } from './webhooks/send-webhooks.ts';

export const TIMING = { jobs: LEASE_TIMING, nodes: NODE_TIMING };

export type Timing = Readonly<typeof TIMING>;

/** Closes everything if it rejects. Otherwise the caller closes `tls` and `stores`. */
export async function openResources(
  config: Config,
  log: Logger,
  observer?: StorageObserver & SettledObserver,
) {
  const tls = await TlsFiles.open(config.tls, { log });
  try {
    const blobs = await openStorages(config, { log, ...(observer && { observer }) });
    const secretsKey = config.secretsKey ?? (await loadOrCreateSecretsKey(config.dataDir));
    const previous = config.secretsKeyPrevious;
    const secrets = new CallbackSecrets(
      new SecretBox(secretsKey),
      previous === undefined ? [] : [new SecretBox(previous)],
    );
    const resultTokens = new ResultTokens(secrets);
    const views = new JobViews(config.baseUrl, (jobId, result) => resultTokens.open(jobId, result));
    const database = await openCurrentDatabase(config.databaseUrl, {
      log,
      migrations: 'run',
      packages: migrationsOf(config.packages.map(({ use }) => use)),
    });
    // The pool never reloads its certificates, so the log warns before they expire.
    const databaseEnds = databaseCertificates(config.databaseUrl);
    warnOfEnds(databaseEnds, log);
    const ends: MattingEndOptions = {
      renderOutboxBody: job =>
        secrets.sealText(renderOutboxBody(views, job), notificationBody(job.id)),
      settled: settledOf(config),
      ...(observer && { observer }),
      webhookFirstWaitMs: config.webhookScheduleMs[0],
    };
    const stores = createStores(database, ends, stepsOf(config.packages.map(({ use }) => use)));
    const opened = { blobs, database, stores, secretsKey, secrets, resultTokens, views };
    return { tls, databaseEnds, ...opened };
  } catch (error) {
    tls.close();
    throw error;
  }
}

export function settledOf({ packages }: Pick<Config, 'packages'>): SettledMattingStep[] {
  return packages.flatMap(({ use }) => use.settled ?? []);
}

export interface Base extends Awaited<ReturnType<typeof openResources>> {
  readonly about: About;
  readonly config: Config;
  readonly log: Logger;
  readonly replicaId: string;
  readonly timing: Timing;
  readonly nodeTokens: NodeTokens;
  readonly events: JobEvents;
  readonly guard: OutgoingGuard;
  readonly metrics: ControlMetrics;
  readonly tracing: Tracing | undefined;
}
