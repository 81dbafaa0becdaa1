/**
 * What an account's owners set for low balances: balances that are told, and the address that events
 * go to. A secret is on the answer that made it alone.
 */
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import { ACCOUNT_PATH, renderPage } from '../page/frame.ts';
import {
  button,
  type Child,
  checkbox,
  codeBlock,
  dataTable,
  html,
  notice,
  panel,
  postForm,
  section,
  textField,
  time,
} from '../page/html.ts';
import { formOf, type Visit, visitOf } from '../session/visit.ts';
import { fill, type Words } from '../words/words.ts';
import { THRESHOLDS_MAX } from './balance-alerts.ts';
import type { AlertView, EventDelivery, ManageAlerts } from './manage-alerts.ts';

const PATH = `${ACCOUNT_PATH}/settings`;
const MANAGE = { config: { permission: 'settings.manage' } } as const;

const TEST_SAID = {
  sent: 'tested',
  'too-soon': 'tooSoon',
  'no-webhook': 'noWebhook',
  'used-up': 'usedUp',
} as const;

/** The forms again, where they were not accepted; a secret, this once. */
interface Shown {
  readonly typedThresholds?: readonly string[];
  readonly thresholdsError?: string;
  readonly typedUrl?: string;
  readonly urlError?: string;
  readonly secret?: string;
}

export function registerSettingsRoutes(account: FastifyInstance, alerts: ManageAlerts): void {
  const show = async (reply: FastifyReply, shown: Shown = {}) =>
    renderSettings(reply, await alerts.view(visitOf(reply.request).accountId), shown);
  const said = (reply: FastifyReply, what: keyof Words['settings']['said']) =>
    reply.redirect(`${PATH}?said=${what}`, 303);
  account.get('/settings', MANAGE, (_request, reply) => show(reply));
  account.post('/settings/thresholds', MANAGE, async (request, reply) => {
    const visit = visitOf(request);
    const typedThresholds = formOf(request).all('threshold');
    if (await alerts.setThresholds(visit, typedThresholds)) return said(reply, 'thresholds');
    const { thresholdsWrong: thresholdsError } = visit.words.settings;
    return show(reply, { typedThresholds, thresholdsError });
  });
  account.post('/settings/webhook', MANAGE, async (request, reply) => {
    const visit = visitOf(request);
    const form = formOf(request);
    const change = { url: form.text('url'), newSecret: form.has('new_secret') };
    const outcome = await alerts.setWebhook(visit, change);
    if (outcome.kind === 'set') {
      if (outcome.secret === undefined) return said(reply, 'webhook');
      return show(reply, { secret: outcome.secret });
    }
    const urlError = fill(visit.words.settings.urlWrong, { detail: outcome.detail });
    return show(reply, { typedUrl: change.url, urlError });
  });
  account.post('/settings/webhook/remove', MANAGE, async (request, reply) => {
    await alerts.removeWebhook(visitOf(request));
    return said(reply, 'webhookRemoved');
  });
  account.post('/settings/webhook/test', MANAGE, async (request, reply) =>
    said(reply, TEST_SAID[await alerts.sendTest(visitOf(request))]),
  );
}

function renderSettings(reply: FastifyReply, view: AlertView, shown: Shown): FastifyReply {
  const visit = visitOf(reply.request);
  const { settings, common } = visit.words;
  const { secret } = shown;
  const isWrong = shown.thresholdsError !== undefined || shown.urlError !== undefined;
  return renderPage(reply, {
    title: settings.title,
    lead: settings.lead,
    active: 'settings',
    status: isWrong ? 422 : 200,
    said: settings.said,
    main: html`<div class="stack">
      ${
        secret === undefined
          ? null
          : notice(
              'good',
              html`<p>${settings.secretMade}</p>
              ${codeBlock(secret, common, settings.secretLabel)}`,
            )
      }
      ${section(
        { title: settings.low, lead: settings.lowLead },
        thresholdTable(visit, view),
        thresholdForm(visit, view, shown),
      )}
      ${section({ title: settings.mails, lead: settings.mailsLead }, mailList(visit, view))}
      ${section(
        { title: settings.webhook, lead: settings.webhookLead },
        webhookPart(visit, view, shown),
      )}
    </div>`,
  });
}

function thresholdTable({ words, formats }: Visit, { thresholds }: AlertView): VNode {
  const { settings } = words;
  const [before = '', after = ''] = settings.told.split('{time}');
  const toldAt = (atMs: number): Child => html`${before}${time(atMs, formats.dateTime)}${after}`;
  return dataTable({
    caption: settings.thresholds,
    columns: [settings.credits, settings.state, settings.delivery],
    rows: thresholds.map(({ threshold, toldAtMs, delivery }) => [
      formats.credits(threshold),
      toldAtMs === null ? settings.armed : toldAt(toldAtMs),
      delivery && deliveryWords(words, delivery),
    ]),
    empty: html`<p class="padded soft">${settings.none}</p>`,
  });
}

function deliveryWords({ settings }: Words, delivery: EventDelivery): string {
  const { status, attempts, lastStatusCode } = delivery;
  const state = fill(settings.deliveries[status], { attempts });
  if (status === 'delivered' || lastStatusCode === null) return state;
  return `${state}, ${fill(settings.answer, { status: lastStatusCode })}`;
}

function thresholdForm({ words, csrf }: Visit, { thresholds }: AlertView, shown: Shown): VNode {
  const { settings } = words;
  const values = shown.typedThresholds ?? thresholds.map(({ threshold }) => String(threshold));
  const fields = Array.from({ length: THRESHOLDS_MAX }, (_, index) =>
    textField({
      name: 'threshold',
      id: `threshold-${index + 1}`,
      label: fill(settings.threshold, { number: index + 1 }),
      value: values[index] ?? '',
      inputmode: 'numeric',
      maxlength: 10,
      autocomplete: 'off',
      error: index === 0 ? shown.thresholdsError : undefined,
    }),
  );
  return panel(
    postForm(
      { action: `${PATH}/thresholds`, csrf },
      html`<div class="row">${fields}</div>`,
      button({ label: settings.saveThresholds }),
    ),
  );
}

function mailList({ words }: Visit, { owners, mails, mailsUsedUp }: AlertView): VNode {
  const { settings } = words;
  if (!mails) return notice('warning', settings.mailsOff);
  if (owners.length === 0) return notice('warning', settings.noOwners);
  const list = panel(html`<ul>${owners.map(mail => html`<li>${mail}</li>`)}</ul>`);
  if (mailsUsedUp === undefined) return list;
  return html`<div class="stack">
    ${notice('warning', fill(settings.mailsUsedUp, { count: mailsUsedUp }))}${list}
  </div>`;
}

function webhookPart(visit: Visit, { webhook, test }: AlertView, shown: Shown): VNode {
  const { words } = visit;
  const { settings } = words;
  return html`<div class="stack">
    ${webhook?.readable === false ? notice('bad', settings.unreadable) : null}
    ${panel(webhookForm(visit, webhook, shown))}
    ${
      webhook === null
        ? null
        : panel(
            test && html`<p>${fill(settings.lastTest, { state: deliveryWords(words, test) })}</p>`,
            html`<div class="actions">${webhookActions(visit)}</div>`,
          )
    }
  </div>`;
}

function webhookForm({ words, csrf }: Visit, webhook: AlertView['webhook'], shown: Shown): VNode {
  const { settings } = words;
  return postForm(
    { action: `${PATH}/webhook`, csrf },
    textField({
      name: 'url',
      label: settings.url,
      type: 'url',
      hint: settings.urlHint,
      value: shown.typedUrl ?? webhook?.url ?? '',
      error: shown.urlError,
      required: true,
      maxlength: 2048,
      autocomplete: 'off',
    }),
    webhook &&
      checkbox({
        name: 'new_secret',
        label: settings.newSecret,
        hint: settings.newSecretHint,
        checked: !webhook.readable,
      }),
    button({ label: settings.saveWebhook }),
  );
}

function webhookActions({ words, csrf }: Visit): VNode[] {
  const { settings } = words;
  return [
    postForm(
      { action: `${PATH}/webhook/test`, csrf, class: 'inline' },
      button({ label: settings.test, kind: 'secondary' }),
    ),
    postForm(
      { action: `${PATH}/webhook/remove`, csrf, class: 'inline' },
      button({ label: settings.removeWebhook, kind: 'danger', confirm: settings.removeConfirm }),
    ),
  ];
}
