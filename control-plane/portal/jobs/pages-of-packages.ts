/** Pages of other packages: a list of an account's things, and the page of one with its jobs. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { type AccountPage, renderPage } from '../page/account-frame.ts';
import { ACCOUNT_PATH, type Child, html } from '../page/html.ts';
import * as ui from '../page/ui.ts';
import { may } from '../session/roles.ts';
import { PageError, queryOf, type Visit, visitOf } from '../session/visit.ts';
import { fill } from '../words/words.ts';
import type { JobKey } from './account-jobs.ts';
import { jobColumns, jobRow, keyName } from './job-pages.ts';
import { type PageOfJobs, sendResultsZip, type ZipServices } from './results-zip.ts';

const READ = { config: { permission: 'jobs.read' } } as const;
const READ_RESULTS = { config: { permission: 'results.read' } } as const;
const MAY = { owners: 'jobs.cancel', members: 'jobs.correct' } as const;
const SHOWN = ['all', 'look', 'failed'] as const;
const REFRESH_S = 5;

type AccountThing = Awaited<ReturnType<AccountPage['list']>>[number];
type ThingPage = NonNullable<Awaited<ReturnType<AccountPage['find']>>>;
type ThingRequest = FastifyRequest<{ Params: { id: string } }>;

export function registerPluggedPages(
  account: FastifyInstance,
  pages: readonly AccountPage[],
  services: ZipServices,
): void {
  const { accountJobs } = services;
  for (const page of pages) {
    const viewOf = async (request: FastifyRequest): Promise<View> => {
      const visit = visitOf(request);
      const keys = await accountJobs.keys(visit.accountId);
      return { page, visit, keys, texts: page.words[visit.language], path: pathOf(page) };
    };
    account.get(`/${page.name}`, READ, async (request, reply) =>
      renderThings(reply, await viewOf(request)),
    );
    account.get(`/${page.name}/:id`, READ, async (request: ThingRequest, reply) =>
      renderThing(reply, request.params.id, await viewOf(request)),
    );
    account.get(`/${page.name}/:id/results.zip`, READ_RESULTS, (request: ThingRequest, reply) =>
      sendResultsZip(reply, pagesOf(page, request), services),
    );
    for (const [name, { by, act }] of Object.entries(page.actions)) {
      account.post(
        `/${page.name}/:id/${name}`,
        { config: { permission: MAY[by] } },
        async (request: ThingRequest, reply) => {
          const { accountId, actor } = visitOf(request);
          const done = await act(request.params.id, { accountId, actor });
          if (done === undefined) throw new PageError('notFound');
          const of = encodeURIComponent(done.id);
          return reply.redirect(`${pathOf(page)}/${of}?said=${done.said}`, 303);
        },
      );
    }
  }
}

async function* pagesOf(page: AccountPage, request: ThingRequest): AsyncGenerator<PageOfJobs> {
  const { accountId } = visitOf(request);
  for (let from: number | undefined = 0; from !== undefined; ) {
    const thing: ThingPage | undefined = await page.find(request.params.id, { accountId, from });
    if (thing === undefined) throw new PageError('notFound');
    yield thing.jobs;
    from = thing.next;
  }
}

const pathOf = ({ name }: AccountPage) => `${ACCOUNT_PATH}/${name}`;

interface View {
  readonly page: AccountPage;
  readonly visit: Visit;
  readonly keys: readonly JobKey[];
  readonly texts: AccountPage['words']['en'];
  readonly path: string;
}

async function renderThings(reply: FastifyReply, view: View): Promise<FastifyReply> {
  const { page, visit, texts } = view;
  const { title, lead, created, state, progress, failed, thing } = texts;
  const key = { label: visit.words.jobs.key, cut: true };
  const act = { label: texts.action, silent: true };
  return renderPage(reply, {
    ...{ title, lead, active: page.name },
    main: html`<div>
      ${ui.dataTable({
        caption: title,
        columns: [created, texts.name, state, key, progress, ui.end(failed), thing, act],
        rows: (await page.list(visit.accountId)).map(one => rowOf(view, one)),
        empty: ui.emptyState(texts.empty),
      })}
    </div>`,
  });
}

function rowOf(view: View, thing: AccountThing): Child[] {
  const { visit, keys } = view;
  const { formats, words } = visit;
  const path = `${view.path}/${thing.id}`;
  const failed = formats.credits(thing.failed);
  return [
    html`<a href=${path}>${ui.ago(thing.createdAtMs, formats.dateTime)}</a>`,
    thing.name === null ? null : html`<a class="address" href=${path}>${thing.name}</a>`,
    stateBadge(view, thing),
    keyName(words, keys, thing.apiKeyId),
    progressOf(view, thing),
    thing.failed === 0 ? failed : html`<a href=${`${path}?state=failed`}>${failed}</a>`,
    ui.shortId(thing.id),
    formOf(view, thing, 'secondary'),
  ];
}

async function renderThing(reply: FastifyReply, id: string, view: View): Promise<FastifyReply> {
  const { request } = reply;
  const { page, visit, texts } = view;
  const after = Number(/^\d{1,9}$/.exec(String(queryOf(request, 'after')))?.[0] ?? 0);
  const shown = SHOWN.find(one => one === queryOf(request, 'state')) ?? 'all';
  const only = shown === 'all' ? undefined : shown;
  const { accountId, words } = visit;
  const thing = await page.find(id, { accountId, from: after, only });
  if (thing === undefined) throw new PageError('notFound');
  if (thing.finishedAtMs === null) reply.header('refresh', REFRESH_S);
  const path = `${view.path}/${thing.id}`;
  const { groups, state, empty } = words.jobs;
  const cursors = { after: after || undefined, next: thing.next?.toString() };
  return renderPage(reply, {
    title: `${texts.thing} ${thing.name ?? thing.id.slice(0, 8)}`,
    active: page.name,
    back: { href: view.path, label: texts.title },
    notices: texts.said,
    actions: [zipLink(view, thing), formOf(view, thing, 'danger')],
    main: html`<div>
      <div class="progress">${progressOf(view, thing)}</div>
      ${facts(view, thing)}
      <section class="section">
      ${ui.segments(
        state,
        SHOWN.map(one => ({
          label: groups[one],
          href: one === 'all' ? path : `${path}?state=${one}`,
          active: one === shown,
        })),
      )}
      ${ui.dataTable({
        caption: texts.title,
        columns: jobColumns(visit),
        rows: thing.jobs.map(job => {
          const unnamed = fill(texts.part, { number: (job.group?.item ?? 0) + 1 });
          return jobRow(visit, { ...job, reference: job.reference ?? unnamed });
        }),
        empty: ui.emptyState(empty),
      })}
      ${ui.pager(words.common, path, cursors, { state: only })}
      </section>
    </div>`,
  });
}

function facts(view: View, thing: ThingPage): Child[] {
  const { visit, texts, keys } = view;
  const { words, formats } = visit;
  const { apiKeyId } = thing;
  const counted = Object.entries(thing.counts).filter(([, count]) => count > 0);
  const figures = counted.map(([state, count]) => ({
    label: texts.states[state] ?? state,
    value: formats.credits(count),
    tone: state === 'failed' ? ('bad' as const) : undefined,
  }));
  const key = `${ACCOUNT_PATH}/keys/${apiKeyId}`;
  return [
    ui.figures(figures),
    ui.definitionList([
      [texts.thing, ui.copyable(thing.id, words.common)],
      [texts.name, thing.name],
      [texts.state, stateBadge(view, thing)],
      [words.jobs.key, html`<a href=${key}>${keyName(words, keys, apiKeyId)}</a>`],
      [texts.created, ui.time(thing.createdAtMs, formats.exactTime)],
      [words.jobs.finished, ui.time(thing.finishedAtMs, formats.exactTime)],
    ]),
  ];
}

function stateBadge({ texts }: View, { state, tone }: AccountThing): Child {
  return ui.badge(texts.states[state] ?? state, tone);
}

function progressOf({ visit: { formats }, texts }: View, { ended, all }: AccountThing): Child {
  const text = fill(texts.ended, { done: formats.credits(ended), all: formats.credits(all) });
  return html`<progress max=${all} value=${ended} aria-label=${texts.progress}></progress>${' '}${text}`;
}

function zipLink({ visit, path }: View, { id, counts }: ThingPage): Child {
  if (!counts.succeeded || !may(visit.role, 'results.read')) return null;
  const label = visit.words.jobs.zip.download;
  return ui.linkButton({ href: `${path}/${id}/results.zip`, label });
}

function formOf(view: View, { id, action }: AccountThing, kind: ui.ButtonKind): Child {
  const { role, csrf } = view.visit;
  const of = action === undefined ? undefined : view.page.actions[action];
  const text = view.texts.actions[action ?? ''];
  if (of === undefined || text === undefined || !may(role, MAY[of.by])) return null;
  const { label, confirm } = text;
  return ui.postForm(
    { action: `${view.path}/${id}/${action}`, csrf, class: 'inline' },
    ui.button({
      ...{ label, confirm, describe: `${label}: ${id}` },
      kind: of.by === 'owners' ? kind : 'secondary',
    }),
  );
}
