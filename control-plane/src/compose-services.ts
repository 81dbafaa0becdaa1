/** Makes the use cases behind the public port, and the conditions they ask about. Opens nothing. */
import type { Logger } from 'pino';
import { composeAccountArea } from './compose-account.ts';
import type { Dispatch } from './compose-dispatch.ts';
import { composePlayground } from './compose-playground.ts';
import { composeSales, type SalesParts } from './compose-sales.ts';
import type { Config } from './config.ts';
import type { AppServices } from './http/public-app.ts';
import type { CallbackSecrets } from './secrets/callback-secret.ts';
import { ReadAccount } from './services/account.ts';
import type { OnWithheld } from './services/alerts/withheld-messages.ts';
import { Authenticate } from './services/authenticate.ts';
import type { JobEvents } from './services/job-events.ts';
import { KeyUses } from './services/keys/key-uses.ts';
import { RateLimits } from './services/rate-limits.ts';
import { ReadinessService } from './services/readiness.ts';
import type { JobViews } from './services/reading/job-view.ts';
import { type LossObserver, LostResults } from './services/reading/lost-results.ts';
import { ReadJob } from './services/reading/read-job.ts';
import { ResultDownload } from './services/reading/result-download.ts';
import { type ResultReaderBounds, ResultReaders } from './services/reading/result-readers.ts';
import { WaitForJob } from './services/reading/wait-for-job.ts';
import { RemoveBackground } from './services/removebg/remove-background.ts';
import { AcceptanceGate } from './services/submission/acceptance.ts';
import { SubmitMatting } from './services/submission/submit-matting.ts';
import { ImageUploads, type UploadBounds } from './services/submission/submit-upload.ts';
import { ReadUsage } from './services/usage/read-usage.ts';
import { CallbackAddressCheck } from './sources/callback-url.ts';
import type { OutgoingGuard } from './sources/guard/outgoing-guard.ts';
import type { BlobStore } from './storage/blob-store.ts';
import type { Stores } from './store/stores.ts';

export interface ServiceParts {
  readonly config: Config;
  readonly stores: Stores;
  readonly blobs: BlobStore;
  readonly secrets: CallbackSecrets;
  readonly secretsKey: Buffer;
  readonly views: JobViews;
  readonly events: JobEvents;
  readonly guard: OutgoingGuard;
  readonly acceptance: Pick<AcceptanceGate, 'requireAble' | 'requireOpen' | 'requireRoom'>;
  readonly readiness: AppServices['readiness'];
  readonly log: Pick<Logger, 'error'>;
  readonly lossObserver: LossObserver;
  /** Called once for each notification of a payment that is proven. */
  readonly onPaymentTold?: SalesParts['onPaymentTold'];
  readonly onWithheld?: OnWithheld;
  /** The services' own where absent; tests narrow them. */
  readonly bounds?: {
    readonly uploadSlots?: UploadBounds | undefined;
    readonly resultReaders?: ResultReaderBounds | undefined;
  };
}

/** The classes themselves: beside what http calls, metrics read them and the drain ends them. */
export interface Services extends AppServices {
  readonly uploads: ImageUploads;
  readonly submitMatting: SubmitMatting;
  readonly waitForJob: WaitForJob;
  readonly resultReaders: ResultReaders;
  readonly keyUses: KeyUses;
  /** Who looks over all results asks it too. */
  readonly losses: LostResults;
}

export function composeServices(parts: ServiceParts): Services {
  const { config, stores, blobs, events, guard, bounds = {} } = parts;
  const { jobs } = stores;
  const readAccount = new ReadAccount(stores.ledger, stores.apiKeys);
  const readUsage = new ReadUsage({ usage: stores.usage, apiKeys: stores.apiKeys });
  const submitMatting = new SubmitMatting({
    jobs,
    readAccount,
    blobs,
    events,
    acceptance: parts.acceptance,
    callbackAddresses: new CallbackAddressCheck({ guard }),
    callbackSecrets: parts.secrets,
    jobsInFlightMax: config.jobsInFlightMax,
    fieldPolicy: config,
  });
  const losses = new LostResults({
    jobs,
    lostResults: stores.lostResults,
    blobs,
    observer: parts.lossObserver,
    log: parts.log,
  });
  const shared = {
    uploads: new ImageUploads(blobs, bounds.uploadSlots),
    resultDownload: new ResultDownload({
      ...{ jobs, blobs, losses },
      signed: config.resultDownloads === 'redirect' ? blobs.signed : undefined,
    }),
    resultReaders: new ResultReaders(bounds.resultReaders),
  };
  const removebgDefaultSize = config.removebg?.defaultSize ?? 'auto';
  const sales = composeSales(parts);
  return {
    ...shared,
    losses,
    readAccount,
    readUsage,
    submitMatting,
    removeBackground: new RemoveBackground(submitMatting, { ...config, removebgDefaultSize }),
    waitForJob: new WaitForJob(jobs, events),
    readJob: new ReadJob(jobs),
    jobViews: parts.views,
    authenticator: new Authenticate(stores.apiKeys),
    keyUses: new KeyUses(stores.apiKeys),
    rateLimits: new RateLimits(stores.rateQuotas, {
      submissions: config.submissionsPerMinute,
      reads: config.readsPerMinute,
    }),
    readiness: parts.readiness,
    receivePayment: sales.receivePayment,
    accountArea: {
      ...composeAccountArea(parts, readUsage, sales),
      ...composePlayground(parts, shared),
    },
  };
}

export interface ConditionParts {
  readonly config: Config;
  readonly log: Logger;
  readonly stores: Stores;
  readonly blobs: BlobStore;
  readonly dispatch: Pick<Dispatch, 'fleet' | 'advertised'>;
}

/** Whether the service takes work: asked by submissions, by load balancers. */
export interface Conditions {
  readonly acceptance: AcceptanceGate;
  readonly readiness: ReadinessService;
}

export function composeConditions(parts: ConditionParts): Conditions {
  const { config, log, stores, blobs } = parts;
  const { fleet, advertised } = parts.dispatch;
  const sleeps = config.onDemand !== undefined;
  const acceptance = new AcceptanceGate({
    jobs: stores.jobs,
    unroutableMs: sleeps ? undefined : () => fleet.unroutableMs(),
    noNodeGraceMs: config.noNodeGraceMs,
    advertised,
    queueMegapixelsMax: config.queueMegapixelsMax,
  });
  const readiness = new ReadinessService(
    {
      checkDatabase: () => stores.check(),
      checkStorage: () => blobs.check(),
      hasBeenRoutable: sleeps ? undefined : () => fleet.hasBeenRoutable,
    },
    (cause, err) => log.warn({ err, cause }, 'not ready'),
  );
  return { acceptance, readiness };
}
