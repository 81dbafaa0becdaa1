/** The pages that other packages describe: their things of an account, and what an owner may do with one. */
import type { HttpInterface } from '@matting/core/http/public-app.ts';
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { renderPage } from '../page/account-frame.ts';
import { ACCOUNT_PATH, type Child, html } from '../page/html.ts';
import * as ui from '../page/ui.ts';
import { may } from '../session/roles.ts';
import { type Locale, PageError, type Visit, visitOf } from '../session/visit.ts';
import { fill } from '../words/words.ts';
import { JOBS_PATH } from './thumbnails.ts';

const ACT = 'jobs.cancel';

export type AccountPage = NonNullable<HttpInterface['accountPages']>[number];
type AccountThing = Awaited<ReturnType<AccountPage['list']>>[number];

export function registerPluggedPages(
  account: FastifyInstance,
  pages: readonly AccountPage[],
): void {
  for (const page of pages) {
    account.get(`/${page.name}`, { config: { permission: 'jobs.read' } }, (_request, reply) =>
      renderThings(reply, page),
    );
    account.post(
      `/${page.name}/:id/${page.action}`,
      { config: { permission: ACT } },
      async (request: FastifyRequest<{ Params: { id: string } }>, reply) => {
        const { accountId, actor } = visitOf(request);
        const said = await page.act(request.params.id, { accountId, actor });
        if (said === undefined) throw new PageError('notFound');
        return reply.redirect(`${pathOf(page)}?said=${said}`, 303);
      },
    );
  }
}

export function linksTo(pages: readonly AccountPage[], { language }: Pick<Locale, 'language'>) {
  return pages.map(page => html`<p><a href=${pathOf(page)}>${page.words[language].title}</a></p>`);
}

const pathOf = ({ name }: AccountPage) => `${ACCOUNT_PATH}/${name}`;

async function renderThings(reply: FastifyReply, page: AccountPage): Promise<FastifyReply> {
  const visit = visitOf(reply.request);
  const said = page.words[visit.language];
  const listed = await page.list(visit.accountId);
  return renderPage(reply, {
    title: said.title,
    lead: said.lead,
    active: 'jobs',
    back: { href: JOBS_PATH, label: visit.words.jobs.title },
    said: said.said,
    main: html`<div>
      ${ui.dataTable({
        caption: said.title,
        columns: [
          said.created,
          said.state,
          said.progress,
          ui.end(said.failed),
          said.thing,
          { label: said.act, silent: true },
        ],
        rows: listed.map(thing => rowOf(visit, page, thing)),
        empty: ui.emptyState(said.empty),
      })}
    </div>`,
  });
}

function rowOf(visit: Visit, page: AccountPage, thing: AccountThing): Child[] {
  const { formats, language } = visit;
  const said = page.words[language];
  const [done, all] = [thing.ended, thing.all].map(count => formats.credits(count));
  return [
    ui.ago(thing.createdAtMs, formats.dateTime),
    ui.badge(said.states[thing.state] ?? thing.state, thing.tone),
    html`<progress max=${thing.all} value=${thing.ended}></progress>${' '}
      ${fill(said.ended, { done: done ?? '', all: all ?? '' })}`,
    formats.credits(thing.failed),
    ui.shortId(thing.id),
    formOf(visit, page, thing),
  ];
}

function formOf({ language, role, csrf }: Visit, page: AccountPage, { id, mayAct }: AccountThing) {
  if (!mayAct || !may(role, ACT)) return null;
  const { act: label, actConfirm: confirm } = page.words[language];
  return ui.postForm(
    { action: `${pathOf(page)}/${id}/${page.action}`, csrf, class: 'inline' },
    ui.button({ label, kind: 'secondary', confirm, describe: `${label}: ${id}` }),
  );
}
