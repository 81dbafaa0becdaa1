/** Prints only the host and port of a callback URL. */

import { randomBytes } from 'node:crypto';
import { createServer, type IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  isReadableSecret,
  signingKeyOf,
  UNREADABLE_SECRET,
  wrongWithSignature,
} from '@matting/http/outgoing/webhook-signature.ts';
import { forgetOldest } from '@matting/program/caches.ts';
import { isoTime } from '@matting/program/iso-time.ts';
import { wholeBody } from '@matting/program/whole-body.ts';
import { type Command, Option } from 'commander';
import {
  NOTIFICATIONS_LISTED_DEFAULT,
  NOTIFICATIONS_LISTED_MAX,
  OperateWebhooks,
} from '../operator/operate-webhooks.ts';
import { NOTIFICATION_STATUSES } from '../webhooks/outbox-listing.ts';
import { wholeNumber } from './arguments.ts';
import { type CliContext, CommandError, table } from './context.ts';

const BODY_BYTES_MAX = 1_048_576;
const JOBS_REMEMBERED_MAX = 10_000;

interface ReceivedDelivery {
  readonly atMs: number;
  readonly jobId: string | undefined;
  readonly type: string | undefined;
  readonly wrong: string | undefined;
  readonly repeat: boolean;
  readonly status: number;
  readonly body: string;
}

/** Rejects with the system's error if the port is taken. Answers an invalid delivery with 401. */
async function openWebhookListener(
  { port, secret, status }: { port: number; secret: string; status: number },
  onDelivery: (delivery: ReceivedDelivery) => void,
) {
  const key = signingKeyOf(secret);
  const seen = new Set<string>();
  const server = createServer((request, response) => {
    receive(request).then(
      body => {
        const atMs = Date.now();
        const wrong = wrongWithSignature(key, request.headers, body, Math.floor(atMs / 1000));
        const { job_id: jobId, type } = eventOf(body);
        const repeat = wrong === undefined && jobId !== undefined && seen.has(jobId);
        if (wrong === undefined && jobId !== undefined) seen.add(jobId);
        forgetOldest(seen, JOBS_REMEMBERED_MAX);
        const answered = wrong === undefined ? status : 401;
        response.writeHead(answered).end();
        const delivery = { atMs, jobId, type, wrong, repeat, status: answered };
        onDelivery({ ...delivery, body: body.toString('utf8') });
      },
      () => response.destroy(),
    );
  });
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen(port, '127.0.0.1', resolve);
  });
  const { port: bound } = server.address() as AddressInfo;
  return { url: `http://127.0.0.1:${bound}/`, close: () => closeServer(server) };
}

async function closeServer(server: Server): Promise<void> {
  const closed = new Promise(resolve => server.close(resolve));
  server.closeAllConnections();
  await closed;
}

function receive(request: IncomingMessage): Promise<Buffer> {
  return wholeBody(request, BODY_BYTES_MAX, () => new Error('the body is too large'));
}

function eventOf(body: Buffer): { job_id?: string | undefined; type?: string | undefined } {
  try {
    const event = JSON.parse(body.toString('utf8'));
    const text = (value: unknown) => (typeof value === 'string' ? value : undefined);
    return { job_id: text(event?.job_id), type: text(event?.type) };
  } catch {
    return {};
  }
}

const LISTEN_PORT = 8095;
/** The contract's rule for callback_secret. */
const SECRET = /^[\x20-\x7e]{24,128}$/;

interface ListOptions {
  readonly status?: (typeof NOTIFICATION_STATUSES)[number];
  readonly limit: number;
}

interface ListenOptions {
  readonly port: number;
  readonly secret?: string;
  readonly status: number;
}

export function addWebhookCommands(program: Command, context: CliContext): void {
  const webhooks = program.command('webhooks').description('list, retry and receive notifications');
  webhooks
    .command('list')
    .description('list notifications, newest first')
    .argument('[job]', 'only this job or event (UUID)')
    .addOption(new Option('--status <status>', 'only this status').choices(NOTIFICATION_STATUSES))
    .option(
      '--limit <n>',
      `list at most this many, 1 to ${NOTIFICATIONS_LISTED_MAX}`,
      wholeNumber(1, NOTIFICATIONS_LISTED_MAX),
      NOTIFICATIONS_LISTED_DEFAULT,
    )
    .action((job: string | undefined, options: ListOptions) => list(context, job, options));
  webhooks
    .command('retry')
    .description('send a notification again now')
    .argument('<job>', 'UUID of a job or an account event')
    .action((job: string) => retry(context, job));
  webhooks
    .command('listen')
    .description('receive notifications on this machine and verify their signatures')
    .option('--port <port>', 'port on 127.0.0.1', wholeNumber(0, 65_535), LISTEN_PORT)
    .option('--secret <secret>', 'callback_secret of the submissions (default: a new one)')
    .option('--status <code>', 'HTTP status to answer with', wholeNumber(200, 599), 204)
    .option('--json', 'print one JSON line per delivery')
    .action((options: ListenOptions) => listen(context, options));
}

async function list(context: CliContext, job: string | undefined, options: ListOptions) {
  const { status, limit } = options;
  const rows = await context.withStores(stores =>
    new OperateWebhooks(stores).list({ jobId: job, status, limit }),
  );
  context.report(rows, () =>
    table(
      [
        'JOB OR EVENT',
        'TYPE',
        'STATUS',
        'ATTEMPTS',
        'LAST',
        'LAST ATTEMPT',
        'NEXT ATTEMPT',
        'RECEIVER',
      ],
      rows.map(row => [
        row.job_id,
        row.event ?? 'job',
        row.status,
        String(row.attempts),
        String(row.last_status_code ?? row.last_failure ?? '-'),
        row.last_attempt_at ?? '-',
        row.next_attempt_at ?? '-',
        row.receiver,
      ]),
    ),
  );
}

async function retry(context: CliContext, job: string) {
  const jobId = job.toLowerCase();
  const outcome = await context.withStores(stores => new OperateWebhooks(stores).retry(jobId));
  if (outcome !== 'retried') throw new CommandError(`${jobId}: ${WHY_NOT[outcome]}`);
  context.report({ job_id: jobId, outcome }, () => [`${jobId}: sending now`]);
}

const WHY_NOT = {
  'no-job': 'no such job or event; see "webhooks list"',
  'no-callback': 'its request had no callback_url',
  open: 'the job is still open; retry after it ends',
  delivered: 'delivered before, so its secret and body are erased',
  'secret-erased':
    'its secret and body are erased, because the receiver answered 410 or the job ended more than ' +
    '24 hours ago',
} as const;

async function listen(context: CliContext, options: ListenOptions): Promise<void> {
  const { port, status } = options;
  const secret = options.secret ?? `whsec_${randomBytes(32).toString('base64')}`;
  if (!SECRET.test(secret)) {
    throw new CommandError('--secret must have 24 to 128 printable ASCII characters');
  }
  if (!isReadableSecret(secret)) throw new CommandError(`--secret ${UNREADABLE_SECRET}`);
  const listener = await openWebhookListener({ port, secret, status }, delivery =>
    context.report(deliveryJson(delivery), () => deliveryLines(delivery)),
  ).catch((error: NodeJS.ErrnoException) => {
    throw new CommandError(
      `cannot listen on port ${port} (${error.code}); choose another with --port`,
    );
  });
  const callback = { callback_url: listener.url, callback_secret: secret };
  context.report(callback, () => [
    'Send these two fields with a request:',
    `  "callback_url": "${listener.url}"`,
    `  "callback_secret": ${JSON.stringify(secret)}`,
    'The service of `make start` takes them. Other control planes need ' +
      'MATTING_ALLOW_HTTP_CALLBACKS=true and MATTING_ALLOWED_NETWORKS=127.0.0.0/8.',
    '',
  ]);
  await context.untilInterrupted();
  await listener.close();
}

function deliveryJson({ jobId, type, status, wrong, repeat, body }: ReceivedDelivery) {
  return {
    job_id: jobId ?? null,
    type: type ?? null,
    signature_holds: wrong === undefined,
    wrong: wrong ?? null,
    repeat,
    answered: status,
    body,
  };
}

function deliveryLines(delivery: ReceivedDelivery): string[] {
  const { jobId, type, status, wrong, repeat, body, atMs } = delivery;
  const verdict = wrong === undefined ? 'valid signature' : `INVALID SIGNATURE: ${wrong}`;
  const head = `${isoTime(atMs)}  ${type ?? 'no event'}  job ${jobId ?? '?'}`;
  return [`${head}  ${verdict}${repeat ? '  (a repeat)' : ''}  answered ${status}`, `  ${body}`];
}
