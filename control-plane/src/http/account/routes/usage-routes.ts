/** The account's first page, and what it used: pages and CSV. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { may } from '../../../domain/account/roles.ts';
import { USAGE_DAYS_MAX, type UsageFieldError } from '../../../domain/account/usage.ts';
import type { Overview } from '../../../services/usage/overview.ts';
import type { ReadUsage, UsageEntry } from '../../../services/usage/read-usage.ts';
import { usageCsv } from '../../../services/usage/usage-csv.ts';
import { formatsOf, wordsOf } from '../page/page-request.ts';
import { renderPage } from '../page/render-page.ts';
import { PageError } from '../session/page-error.ts';
import { signedInOf } from '../session/signed-in.ts';
import { overviewPage } from '../views/overview-view.ts';
import type { UsageDay } from '../views/usage-chart.ts';
import { type TypedUsage, type UsageRow, usagePage } from '../views/usage-view.ts';
import { fill, type Words } from '../words/words.ts';

const OVERVIEW = { config: { permission: 'overview.read' } } as const;
const USAGE = { config: { permission: 'usage.read' } } as const;

export interface UsageRouteServices {
  readonly overview: Pick<Overview, 'read'>;
  readonly readUsage: Pick<ReadUsage, 'ask'>;
}

export function registerUsageRoutes(
  account: FastifyInstance,
  services: UsageRouteServices,
  { baseUrl }: { readonly baseUrl: string },
): void {
  account.get('/', OVERVIEW, (request, reply) =>
    showOverview(request, reply, services.overview, baseUrl),
  );
  account.get('/usage', USAGE, (request, reply) => showUsage(request, reply, services.readUsage));
  account.get('/usage.csv', USAGE, async (request, reply) => {
    const { accountId } = signedInOf(request);
    const answer = await services.readUsage.ask(accountId, textsOf(typedOf(request)));
    if ('fault' in answer) throw new PageError('badForm');
    const name = `usage-${answer.group}-${answer.from}-${answer.to}.csv`;
    return reply
      .headers({
        'content-type': 'text/csv; charset=utf-8; header=present',
        'content-disposition': `attachment; filename="${name}"`,
        'cache-control': 'no-store',
        'x-content-type-options': 'nosniff',
      })
      .send(usageCsv(answer));
  });
}

async function showOverview(
  request: FastifyRequest,
  reply: FastifyReply,
  overview: Pick<Overview, 'read'>,
  apiUrl: string,
): Promise<FastifyReply> {
  const { accountId, role } = signedInOf(request);
  const { usage, ...read } = await overview.read(accountId);
  const words = wordsOf(request);
  return renderPage(request, reply, {
    title: words.overview.title,
    lead: words.overview.lead,
    active: 'overview',
    main: overviewPage({
      words,
      formats: formatsOf(request),
      ...read,
      from: usage.from,
      to: usage.to,
      days: usage.usage.filter((entry): entry is UsageDay => 'day' in entry),
      monthBeganMs: Date.parse(`${usage.to.slice(0, '2026-11'.length)}-01T00:00:00Z`),
      apiUrl,
      mayOrder: may(role, 'orders.manage'),
      mayMakeKeys: may(role, 'keys.manage'),
    }),
  });
}

async function showUsage(
  request: FastifyRequest,
  reply: FastifyReply,
  readUsage: Pick<ReadUsage, 'ask'>,
): Promise<FastifyReply> {
  const { accountId } = signedInOf(request);
  const typed = typedOf(request);
  const answer = await readUsage.ask(accountId, textsOf(typed));
  const isWrong = 'fault' in answer;
  // A group is chosen, not typed.
  if (isWrong && answer.field === 'group') throw new PageError('badForm');
  const words = wordsOf(request);
  return renderPage(request, reply, {
    title: words.usage.title,
    lead: words.usage.lead,
    active: 'usage',
    status: isWrong ? 422 : 200,
    main: usagePage({
      words,
      formats: formatsOf(request),
      typed: isWrong ? typed : { from: answer.from, to: answer.to, group: answer.group },
      errors: isWrong ? errorsOf(words, answer) : {},
      figures: isWrong ? undefined : { ...answer, rows: answer.usage.map(rowOf) },
    }),
  });
}

function errorsOf({ usage }: Words, { field, fault }: UsageFieldError) {
  return { [field]: fill(usage.faults[fault], { days: USAGE_DAYS_MAX }) };
}

function rowOf(entry: UsageEntry): UsageRow {
  const { images, failed, credits } = entry;
  return { ...namesOf(entry), images, failed, credits };
}

function namesOf(entry: UsageEntry): Pick<UsageRow, 'name' | 'detail'> {
  if ('day' in entry) return { name: entry.day };
  if ('key' in entry) return { name: entry.name, detail: entry.key ?? undefined };
  if ('outcome' in entry) return { name: entry.outcome };
  return { name: entry.format };
}

/** @throws PageError given twice */
function typedOf(request: FastifyRequest): TypedUsage {
  const query = request.query as Record<string, unknown>;
  const text = (name: string): string => {
    const value = query[name] ?? '';
    if (typeof value !== 'string') throw new PageError('badForm');
    return value;
  };
  return { from: text('from'), to: text('to'), group: text('group') };
}

/** A field that is left empty takes its default. */
function textsOf(typed: TypedUsage): Partial<TypedUsage> {
  return Object.fromEntries(Object.entries(typed).filter(([, text]) => text !== ''));
}
