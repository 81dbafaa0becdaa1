/**
 * The schemas of a job, of its result and of the notifications of its end. Their properties are
 * tied to the types that the routes answer with: a field more or less there does not compile here.
 */
import { OUTPUT_FORMATS } from '#contract/formats.ts';
import { IMAGE_SIDE_PX_MAX } from '#contract/limits.ts';
import type { PublicJobState } from '../../domain/job.ts';
import type { CallbackView, JobView, ResultView } from '../../services/reading/job-view.ts';
import {
  count,
  type JsonSchema,
  noTime,
  object,
  type Properties,
  ref,
  retryable,
  text,
  time,
  timeOrNone,
  uri,
  uuid,
} from './json-schema.ts';

/** What differs between the states; `sync_timeout`, `result` and `error` only where named. */
interface StateSchema {
  readonly startedAt: JsonSchema;
  readonly finishedAt: JsonSchema;
  readonly credits: { readonly reserved: 0 | 1; readonly charged: 0 | 1 };
  readonly more?: Partial<Properties<Pick<JobView, 'result' | 'error' | 'sync_timeout'>>>;
}

const syncTimeout: JsonSchema = {
  const: true,
  description: 'Only in the 202 of the synchronous endpoint: the wait ended, the job goes on.',
};
const open = { finishedAt: noTime, credits: { reserved: 1, charged: 0 } } as const;
const done = { startedAt: time, finishedAt: time, credits: { reserved: 0, charged: 1 } } as const;

const states: Readonly<Record<PublicJobState, StateSchema>> = {
  queued: { ...open, startedAt: noTime, more: { sync_timeout: syncTimeout } },
  processing: { ...open, startedAt: time, more: { sync_timeout: syncTimeout } },
  succeeded: { ...done, more: { result: ref('Result') } },
  expired: done,
  failed: {
    startedAt: timeOrNone,
    finishedAt: time,
    credits: { reserved: 0, charged: 0 },
    more: { error: ref('JobError') },
  },
};

type EveryJob = Omit<JobView, 'result' | 'error' | 'sync_timeout' | 'callback'>;

function jobProperties(state: PublicJobState): Properties<EveryJob> {
  const { startedAt, finishedAt, credits } = states[state];
  return {
    job_id: uuid,
    status: { const: state },
    created_at: time,
    started_at: startedAt,
    finished_at: finishedAt,
    status_url: { ...uri, description: 'Where the job is read.' },
    credits: object<JobView['credits']>({
      reserved: { const: credits.reserved },
      charged: { const: credits.charged },
    }),
  };
}

function job(state: PublicJobState): JsonSchema {
  const properties = { ...jobProperties(state), ...states[state].more, callback: ref('Callback') };
  return object<Record<string, unknown>>(properties, ['callback', 'sync_timeout']);
}

/** `data` of a notification: the job as it ended, without its callback. */
function event(type: string, state: 'succeeded' | 'failed'): JsonSchema {
  return object<Record<'type' | 'timestamp' | 'job_id' | 'data', unknown>>({
    type: { const: type },
    timestamp: { ...time, description: 'When the job ended, in ISO 8601 and UTC.' },
    job_id: { ...uuid, description: 'The same notification may come twice: tell by this.' },
    data: object<Record<string, unknown>>({ ...jobProperties(state), ...states[state].more }),
  });
}

function schemaNameOf(state: PublicJobState): string {
  return `${state[0].toUpperCase()}${state.slice(1)}Job`;
}

const STATES = Object.keys(states) as PublicJobState[];
const OPEN_STATES: readonly PublicJobState[] = ['queued', 'processing'];

function oneOfStates(named: readonly PublicJobState[], description: string): JsonSchema {
  const mapping = Object.fromEntries(
    named.map(state => [state, `#/components/schemas/${schemaNameOf(state)}`]),
  );
  return {
    description,
    oneOf: named.map(state => ref(schemaNameOf(state))),
    discriminator: { propertyName: 'status', mapping },
  };
}

const callback: JsonSchema = object<CallbackView>(
  {
    url: { ...uri, description: 'The callback_url of the submission.' },
    status: { enum: ['pending', 'delivered', 'failed'] },
    attempts: { ...count, description: 'Deliveries tried so far.' },
    last_status_code: {
      type: ['integer', 'null'],
      description: 'What the last one was answered with; null where it was not answered.',
    },
    last_attempt_at: timeOrNone,
    next_attempt_at: timeOrNone,
  },
  [],
  'The notification of a job that was submitted with a callback.',
);

const pixels: JsonSchema = { type: 'integer', minimum: 1, maximum: IMAGE_SIDE_PX_MAX };

const result: JsonSchema = object<ResultView>({
  url: { ...uri, description: 'A download link; needs no header.' },
  format: { enum: [...OUTPUT_FORMATS] },
  contentType: { enum: OUTPUT_FORMATS.map(format => `image/${format}`) },
  sizeBytes: { type: 'integer', minimum: 1 },
  width: { ...pixels, description: "The input's, after its orientation was applied." },
  height: pixels,
  expiresAt: { ...time, description: 'From then on the link answers 410.' },
});

export const jobSchemas: Readonly<Record<string, JsonSchema>> = {
  Job: oneOfStates(STATES, 'One cut-out, from its submission on.'),
  OpenJob: oneOfStates(OPEN_STATES, 'A job that is not final.'),
  ...Object.fromEntries(STATES.map(state => [schemaNameOf(state), job(state)])),
  Result: result,
  JobError: object<NonNullable<JobView['error']>>({
    code: ref('ErrorCode'),
    detail: text,
    retryable,
  }),
  Callback: callback,
  JobSucceededEvent: event('matting.job.succeeded', 'succeeded'),
  JobFailedEvent: event('matting.job.failed', 'failed'),
};
