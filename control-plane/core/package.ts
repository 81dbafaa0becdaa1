import type { KeyRevokedStep } from '@matting/accounts/keys/change-api-keys.ts';
import type { KeyUses } from '@matting/accounts/keys/key-uses.ts';
import type { ManageKeys } from '@matting/accounts/keys/manage-keys.ts';
import type { Database } from '@matting/database/database.ts';
import type { MigrationSeries } from '@matting/database/migrate.ts';
import type { Fleet } from '@matting/nodes/fleet.ts';
import type { EnvReader } from '@matting/program/env.ts';
import type { MetricSet } from '@matting/program/metric-set.ts';
import type { GroupPlacement } from '@matting/queue/fair-order.ts';
import type { SubmissionStep } from '@matting/queue/submit-job.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import type { StorageKind } from '@matting/storage/storage-kind.ts';
import type { FastifyInstance } from 'fastify';
import type { Logger } from 'pino';
import type { LedgerAuditPart } from './audit/ledger-comparisons.ts';
import type { AddCommands } from './cli/context.ts';
import type { CallbackAddressCheck } from './fetching/callback-check.ts';
import type { AppServices, OperatorServices } from './http/app-services.ts';
import type { HttpInterface } from './http/public-app.ts';
import { CORE_MIGRATIONS } from './migrations.ts';
import type { SettledMattingStep } from './queue/matting-ends.ts';
import type { JobEvents } from './results/job-events.ts';
import type { WaitForJob } from './results/wait-for-job.ts';
import type { Removal } from './retention/removal-steps.ts';
import type { CallbackSecrets } from './secrets/secret-box.ts';
import type { CoreSettings } from './settings.ts';
import type { PackageSteps, Stores } from './stores.ts';
import type { ImageUploads } from './submission/image-uploads.ts';
import type { SubmitMatting } from './submission/submit-matting.ts';
import type { DeliveryParts } from './webhooks/deliver-messages.ts';

/**
 * What a package adds. For example, one that counts jobs in a table of its own:
 *
 *     export const counts: Package<boolean> = {
 *       name: 'counts',
 *       migrations: COUNTS_MIGRATIONS,
 *       settled: [countJob],
 *       readSettings: reader => reader.section('Counts').boolean(COUNTS, COUNTS_OPTIONS),
 *       open: ({ database }, isOn) => ({
 *         loops: isOn ? [pollingLoop(REPORT_MS, () => report(database), logFailure)] : [],
 *         removals: [{ name: 'old counts', remove: size => removeOld(database, size) }],
 *       }),
 *     };
 */
export interface Package<Settings = unknown> {
  /** The folder's name. It must not change: the migrations use it. */
  readonly name: string;
  readonly migrations?: MigrationSeries;
  /** Steps in the transaction that ends a job, in this order. */
  readonly settled?: readonly SettledMattingStep[];
  readonly submission?: SubmissionStep;
  readonly keyRevoked?: KeyRevokedStep;
  readonly ledgerAudit?: LedgerAuditPart;
  /**
   * How groups' jobs share the queue. The first package that has this decides. Default: as
   * asynchronous jobs.
   */
  readonly placement?: GroupPlacement;
  readonly storageKind?: StorageKind;
  readonly loadCommands?: () => Promise<AddCommands>;
  readSettings?(reader: EnvReader, core: CoreSettings): Settings;
  warnings?(settings: Settings): readonly string[];
  /** Whether owners of accounts can buy credits; absent: no. */
  sells?(settings: Settings): boolean;
  /** Called once, after the core's services exist and before anything listens. */
  open?(core: Core, settings: Settings): Promise<PackageParts> | PackageParts;
}

export interface About {
  readonly version: string;
  readonly errorsPage: string;
}

export interface Core {
  readonly config: CoreSettings;
  readonly about: About;
  readonly log: Logger;
  readonly replicaId: string;
  /** For the package's own tables only. Read the core's rows through `stores` and `services`. */
  readonly database: Database;
  readonly stores: CoreStores;
  readonly secrets: CallbackSecrets;
  readonly secretsKey: Buffer;
  readonly fleet: Pick<Fleet, 'snapshots'>;
  readonly metrics: MetricSet;
  readonly services: CoreServices;
  readonly operatorServices: OperatorServices;
}

/** For reading. Only the core claims, ends and charges jobs. */
export interface CoreStores {
  readonly groups: Stores['groups'];
  readonly accounts: Pick<Stores['accounts'], 'findByNameOrId'>;
  readonly apiKeys: Pick<Stores['apiKeys'], 'find' | 'list' | 'listExpiring' | 'listNewest'>;
  readonly audit: Pick<Stores['audit'], 'list'>;
  readonly jobs: Pick<
    Stores['jobs'],
    'find' | 'findForKey' | 'list' | 'noteLooked' | 'openOf' | 'search'
  >;
  readonly ledger: Pick<Stores['ledger'], 'balances' | 'lines' | 'list'>;
  /** A package that sends mails leases them by these methods. */
  readonly outbox: DeliveryParts['outbox'] & Pick<Stores['outbox'], 'list' | 'mailsWaiting'>;
}

export interface CoreServices
  extends Pick<
    AppServices,
    | 'authenticator'
    | 'jobViews'
    | 'manyJobs'
    | 'models'
    | 'rateLimits'
    | 'readAccount'
    | 'readJob'
    | 'resultDownload'
    | 'resultReaders'
  > {
  readonly blobs: Pick<BlobStore, 'openRead' | 'remove'>;
  readonly callbackAddresses: Pick<CallbackAddressCheck, 'require'>;
  /** Tells this replica at once that a job has ended or that a notification is due. */
  readonly events: Pick<JobEvents, 'jobFinal' | 'notificationDue'>;
  readonly keyUses: Pick<KeyUses, 'note'>;
  readonly manageKeys: ManageKeys;
  readonly submitMatting: Pick<
    SubmitMatting,
    'submit' | 'submitCorrection' | 'submitKeyless' | 'findMade'
  >;
  readonly uploads: Pick<ImageUploads, 'beginBoth' | 'beginTexts'>;
  readonly waitForJob: Pick<WaitForJob, 'wait'>;
}

export interface PackageParts {
  readonly httpInterface?: HttpInterface | undefined;
  readonly operatorPages?: ((app: FastifyInstance) => void) | undefined;
  /** They run from when the ports listen until the drain. */
  readonly loops?: readonly Loop[];
  readonly removals?: readonly Removal[];
}

export interface Loop {
  start(): void;
  stop(): Promise<void>;
}

export interface ConfiguredPackage {
  readonly use: Package;
  readonly settings: unknown;
}

/** In the order in which they run. */
export function migrationsOf(packages: readonly Package[]): MigrationSeries[] {
  return [CORE_MIGRATIONS, ...packages.flatMap(({ migrations }) => migrations ?? [])];
}

export function stepsOf(packages: readonly Package[]): PackageSteps {
  return {
    submission: packages.flatMap(({ submission }) => submission ?? []),
    keyRevoked: packages.flatMap(({ keyRevoked }) => keyRevoked ?? []),
    ledgerAudit: packages.flatMap(({ ledgerAudit }) => ledgerAudit ?? []),
  };
}

export function storageKindsOf(packages: readonly Package[]): StorageKind[] {
  return packages.flatMap(({ storageKind }) => storageKind ?? []);
}
