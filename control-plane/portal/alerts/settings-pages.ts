/**
 * The page of thresholds and of the address for the account's events. A secret is shown only once.
 */

import { randomBytes, randomUUID } from 'node:crypto';
import type { Actor } from '@matting/accounts/audit-log.ts';
import type { CoreServices } from '@matting/core/package.ts';
import { type CallbackSecrets, notificationBody } from '@matting/core/secrets/secret-box.ts';
import { type CallbackPolicy, wrongWithCallbackUrl } from '@matting/http/outgoing/callback-url.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { FastifyInstance, FastifyReply } from 'fastify';
import type { VNode } from 'preact';
import { WEBHOOKS_PATH } from '../jobs/webhook-pages.ts';
import type { OnWithheld } from '../mails/owners-mails.ts';
import { renderPage } from '../page/account-frame.ts';
import { ACCOUNT_PATH, html } from '../page/html.ts';
import * as ui from '../page/ui.ts';
import { formOf, type Visit, visitOf } from '../session/visit.ts';
import { fill, type Words } from '../words/words.ts';
import { type AlertSettingsStore, accountSecretId, type EventDelivery } from './alert-settings.ts';
import { type AlertStore, THRESHOLDS_MAX, thresholdsOf, webhookTestBody } from './alert-store.ts';

const TEST_EVERY_MS = 10_000;

export type { EventDelivery };

type AlertView = Awaited<ReturnType<ManageAlerts['view']>>;

interface AlertScope {
  readonly accountId: string;
  readonly accountName: string;
  readonly actor: Actor;
}

interface WebhookChange {
  readonly url: string;
  readonly newSecret: boolean;
}

type WebhookOutcome =
  /** `secret`: the new one, shown only now. Undefined: the old one stays. */
  | { readonly kind: 'set'; readonly secret: string | undefined }
  /** Events cannot go to the URL. `detail` is in English, as in the API. */
  | { readonly kind: 'wrong-url'; readonly detail: string };

interface ManageAlertsDependencies {
  readonly settings: AlertSettingsStore;
  readonly alerts: Pick<AlertStore, 'owners'>;
  readonly secrets: Pick<CallbackSecrets, 'seal' | 'sealText' | 'rebind' | 'keyIds'>;
  readonly addresses: CoreServices['callbackAddresses'];
  readonly policy: CallbackPolicy;
  readonly mails: boolean;
  readonly messagesMax: number;
  readonly onWithheld: OnWithheld;
}

export class ManageAlerts {
  readonly #dependencies: ManageAlertsDependencies;

  constructor(dependencies: ManageAlertsDependencies) {
    this.#dependencies = dependencies;
  }

  /** A `webhook` that is not `readable` needs a new secret. */
  async view(accountId: string) {
    const { settings, alerts, secrets, mails, messagesMax } = this.#dependencies;
    const { thresholds, webhook, test, sentToday } = await settings.read(accountId);
    const owners = (await alerts.owners(accountId)).map(({ mail }) => mail);
    const readable = webhook !== null && secrets.keyIds.includes(webhook.secretKeyId);
    return {
      thresholds,
      webhook: webhook === null ? null : { url: webhook.url, readable },
      test,
      owners,
      mails,
      mailsUsedUp: sentToday.mails >= messagesMax ? messagesMax : undefined,
    };
  }

  /** False: not whole numbers of credits, or too many. Nothing changed. */
  async setThresholds(scope: AlertScope, texts: readonly string[]): Promise<boolean> {
    const thresholds = thresholdsOf(texts);
    if (thresholds === undefined) return false;
    const { settings } = this.#dependencies;
    const { accountId } = scope;
    const by = changedBy(scope);
    await settings.setThresholds(accountId, thresholds, by);
    return true;
  }

  async setWebhook(scope: AlertScope, change: WebhookChange): Promise<WebhookOutcome> {
    const { settings, secrets } = this.#dependencies;
    const { accountId } = scope;
    const url = change.url.trim();
    const wrong = await this.#wrongWith(url, accountId);
    if (wrong !== undefined) return { kind: 'wrong-url', detail: wrong };
    const by = changedBy(scope);
    if (!change.newSecret && (await settings.setWebhook(accountId, { url }, by))) {
      return { kind: 'set', secret: undefined };
    }
    const secret = `whsec_${randomBytes(32).toString('base64')}`;
    const sealed = secrets.seal(accountSecretId(accountId), secret);
    await settings.setWebhook(accountId, { url, ...sealed }, by);
    return { kind: 'set', secret };
  }

  async removeWebhook(scope: AlertScope): Promise<void> {
    const { settings } = this.#dependencies;
    const by = changedBy(scope);
    const { accountId } = scope;
    await settings.setWebhook(accountId, null, by);
  }

  /** no-webhook: no address, or its secret cannot be decrypted. used-up: today's quota. */
  async sendTest(scope: AlertScope): Promise<'sent' | 'too-soon' | 'no-webhook' | 'used-up'> {
    const { settings, secrets, messagesMax, onWithheld } = this.#dependencies;
    const { accountId, accountName } = scope;
    const id = randomUUID();
    const by = changedBy(scope);
    const webhook = await settings.webhook(accountId);
    if (webhook === undefined) return 'no-webhook';
    const sealed = secrets.rebind(accountSecretId(accountId), id, webhook);
    if (sealed === undefined) return 'no-webhook';
    const text = webhookTestBody(id, { id: accountId, name: accountName }, Date.now());
    const body = secrets.sealText(text, notificationBody(id));
    const event = { id, accountId, event: 'account.webhook_test', url: webhook.url } as const;
    const bounds = { everyMs: TEST_EVERY_MS, messagesMax };
    const outcome = await settings.sendTest({ ...event, body, ...sealed }, bounds, by);
    if (typeof outcome === 'string') return outcome;
    onWithheld(accountId, outcome);
    return 'used-up';
  }

  async #wrongWith(url: string, accountId: string): Promise<string | undefined> {
    const { addresses, policy } = this.#dependencies;
    const wrong = wrongWithCallbackUrl(url, policy);
    if (wrong !== undefined) return wrong;
    try {
      await addresses.require(url, accountId);
      return undefined;
    } catch (error) {
      if (!(error instanceof ContractError) || error.code !== 'INVALID_CALLBACK') throw error;
      return error.fieldErrors[0]?.detail ?? error.message;
    }
  }
}

function changedBy({ actor }: AlertScope) {
  return { auditId: randomUUID(), actor };
}

const PATH = `${ACCOUNT_PATH}/settings`;
const MANAGE = { config: { permission: 'settings.manage' } } as const;

const TEST_SAID = {
  sent: 'tested',
  'too-soon': 'tooSoon',
  'no-webhook': 'noWebhook',
  'used-up': 'usedUp',
} as const;

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
  const redirect = (reply: FastifyReply, what: keyof Words['settings']['notices']) =>
    reply.redirect(`${PATH}?said=${what}`, 303);
  account.get('/settings', MANAGE, (_request, reply) => show(reply));
  account.post('/settings/thresholds', MANAGE, async (request, reply) => {
    const visit = visitOf(request);
    const typedThresholds = formOf(request).all('threshold');
    if (await alerts.setThresholds(visit, typedThresholds)) return redirect(reply, 'thresholds');
    const { thresholdsWrong: thresholdsError } = visit.words.settings;
    return show(reply, { typedThresholds, thresholdsError });
  });
  account.post('/settings/webhook', MANAGE, async (request, reply) => {
    const visit = visitOf(request);
    const form = formOf(request);
    const change = { url: form.text('url'), newSecret: form.has('new_secret') };
    const outcome = await alerts.setWebhook(visit, change);
    if (outcome.kind === 'set') {
      if (outcome.secret === undefined) return redirect(reply, 'webhook');
      return show(reply, { secret: outcome.secret });
    }
    const urlError = fill(visit.words.settings.urlWrong, { detail: outcome.detail });
    return show(reply, { typedUrl: change.url, urlError });
  });
  account.post('/settings/webhook/remove', MANAGE, async (request, reply) => {
    await alerts.removeWebhook(visitOf(request));
    return redirect(reply, 'webhookRemoved');
  });
  account.post('/settings/webhook/test', MANAGE, async (request, reply) =>
    redirect(reply, TEST_SAID[await alerts.sendTest(visitOf(request))]),
  );
}

function renderSettings(reply: FastifyReply, view: AlertView, shown: Shown): FastifyReply {
  const visit = visitOf(reply.request);
  const { settings, common } = visit.words;
  const { secret } = shown;
  const mailLead = view.mails ? settings.mailsLead : settings.mailsOff;
  const isWrong = shown.thresholdsError !== undefined || shown.urlError !== undefined;
  return renderPage(reply, {
    title: settings.title,
    lead: settings.lead,
    active: 'settings',
    status: isWrong ? 422 : 200,
    notices: settings.notices,
    main: html`<div class="stack">
      ${
        secret === undefined
          ? null
          : ui.notice(
              'good',
              html`<p>${settings.secretMade}</p>
              ${ui.codeBlock(secret, common, settings.secretLabel)}`,
            )
      }
      ${ui.section(
        { title: settings.low, lead: settings.lowLead },
        view.thresholds.length === 0 ? null : thresholdTable(visit, view),
        thresholdForm(visit, view, shown),
      )}
      ${ui.section({ title: settings.mails, lead: mailLead }, view.mails && mailList(visit, view))}
      ${ui.section(
        {
          title: settings.webhook,
          lead: html`${settings.webhookLead} <a href=${WEBHOOKS_PATH}>${settings.jobWebhooks}</a>`,
        },
        webhookPart(visit, view, shown),
      )}
    </div>`,
  });
}

function thresholdTable({ words, formats }: Visit, { thresholds }: AlertView): VNode {
  const { settings } = words;
  return ui.dataTable({
    caption: settings.thresholds,
    columns: [settings.credits, settings.state, settings.delivery],
    rows: thresholds.map(({ threshold, notifiedAtMs, delivery }) => [
      formats.credits(threshold),
      notifiedAtMs === null
        ? settings.armed
        : ui.phrase(settings.notified, { time: ui.time(notifiedAtMs, formats.dateTime) }),
      delivery && deliveryWords(words, delivery),
    ]),
  });
}

function deliveryWords({ settings, jobs }: Words, delivery: EventDelivery): string {
  const { status, attempts, lastStatusCode, lastFailure } = delivery;
  const state = fill(settings.deliveries[status], { attempts });
  if (lastStatusCode === null) {
    return lastFailure === null ? state : `${state}: ${jobs.failures[lastFailure]}`;
  }
  if (status === 'delivered') return state;
  return `${state}, ${fill(settings.answer, { status: lastStatusCode })}`;
}

function thresholdForm({ words, csrf }: Visit, { thresholds }: AlertView, shown: Shown): VNode {
  const { settings } = words;
  const saved = thresholds.map(({ threshold }) => String(threshold));
  const values = shown.typedThresholds ?? saved;
  // Adds an empty field for a new threshold.
  const count = Math.min(values.length + (shown.typedThresholds ? 0 : 1), THRESHOLDS_MAX);
  const { thresholdsError: error } = shown;
  const wrong = values.findIndex(text => thresholdsOf([text]) === undefined);
  const fields = Array.from({ length: count }, (_, index) =>
    ui.textField({
      name: 'threshold',
      id: `threshold-${index + 1}`,
      label: index < saved.length ? settings.threshold : settings.newThreshold,
      value: values[index] ?? '',
      inputmode: 'numeric',
      maxlength: 10,
      autocomplete: 'off',
      error: index === Math.max(wrong, 0) ? error : undefined,
    }),
  );
  return ui.panel(
    ui.postForm(
      { action: `${PATH}/thresholds`, csrf },
      html`<div class="row">${fields}</div>`,
      saved.length === 0 ? null : html`<p class="hint">${settings.thresholdHint}</p>`,
      ui.button({ label: settings.saveThresholds }),
    ),
  );
}

function mailList({ words: { settings } }: Visit, { owners, mailsUsedUp }: AlertView): VNode {
  if (owners.length === 0) return ui.notice('warning', settings.noOwners);
  const list = ui.panel(html`<ul>${owners.map(mail => html`<li>${mail}</li>`)}</ul>`);
  if (mailsUsedUp === undefined) return list;
  return html`<div class="stack">
    ${ui.notice('warning', fill(settings.mailsUsedUp, { count: mailsUsedUp }))}${list}
  </div>`;
}

function webhookPart(visit: Visit, { webhook, test }: AlertView, shown: Shown): VNode {
  const { words } = visit;
  const { settings } = words;
  return html`<div class="stack">
    ${webhook?.readable === false ? ui.notice('bad', settings.unreadable) : null}
    ${ui.panel(webhookForm(visit, webhook, shown))}
    ${
      webhook === null
        ? null
        : ui.panel(
            test && html`<p>${fill(settings.lastTest, { state: deliveryWords(words, test) })}</p>`,
            ui.actions(webhookActions(visit)),
          )
    }
  </div>`;
}

function webhookForm({ words, csrf }: Visit, webhook: AlertView['webhook'], shown: Shown): VNode {
  const { settings } = words;
  return ui.postForm(
    { action: `${PATH}/webhook`, csrf },
    ui.textField({
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
      ui.checkbox({
        name: 'new_secret',
        label: settings.newSecret,
        hint: settings.newSecretHint,
        checked: !webhook.readable,
      }),
    ui.button({ label: settings.saveWebhook }),
  );
}

function webhookActions({ words, csrf }: Visit): VNode[] {
  const { settings } = words;
  return [
    ui.postForm(
      { action: `${PATH}/webhook/test`, csrf, class: 'inline' },
      ui.button({ label: settings.test, kind: 'secondary' }),
    ),
    ui.postForm(
      { action: `${PATH}/webhook/remove`, csrf, class: 'inline' },
      ui.button({ label: settings.removeWebhook, kind: 'danger', confirm: settings.removeConfirm }),
    ),
  ];
}
