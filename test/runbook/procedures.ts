/** A page of docs/runbook.md: its alert fires, its commands run, it ends. */
import assert from 'node:assert/strict';
import type { ExecutionContext, SerialFn } from 'ava';
import type { Sample } from '../monitoring/prometheus-server.ts';
import { isNotTested } from '../support/skip.ts';
import { type Command, type Env, type Installation, SKIP } from './installation.ts';
import { alertRules, codeOf, type RunbookPage, runbookPages } from './runbook-page.ts';

const PAGES = runbookPages();
const RULES = alertRules();
/** Shortens a rule's minutes and hours. */
const WINDOW = '[30s]';
const STATE_MS_MAX = 400_000;

export class Procedure {
  readonly #installation: Installation;
  readonly #page: RunbookPage;
  readonly #ran = new Set<string>();

  constructor(installation: Installation, page: RunbookPage) {
    this.#installation = installation;
    this.#page = page;
  }

  /** Waits out the rule's delay; returns the labels of each case. */
  async fires(
    meanwhile: () => Promise<unknown> = async () => undefined,
  ): Promise<readonly Readonly<Record<string, string>>[]> {
    let firing: readonly Sample[] = [];
    const asked = async () => {
      await meanwhile();
      firing = await this.#ask();
      return firing.length > 0;
    };
    await this.#installation.until(`${this.#page.alert} fires`, asked, STATE_MS_MAX);
    return firing.map(({ metric }) => metric);
  }

  async isOver(): Promise<void> {
    const now = async () => (await this.#ask()).length === 0;
    await this.#installation.until(`${this.#page.alert} is over`, now, STATE_MS_MAX);
  }

  /** `places` replaces `<placeholders>`. */
  async run(
    line: string,
    places: Readonly<Record<string, string>> = {},
    options: { readonly env?: Env; readonly code?: number } = {},
  ): Promise<Command> {
    const command = this.taken(line, places);
    const done = await this.#installation.run(command, options.env);
    assert.equal(done.code, options.code ?? 0, `${command}: ${done.out}${done.err}`);
    return done;
  }

  taken(line: string, places: Readonly<Record<string, string>> = {}): string {
    assert.ok(this.#page.commands.includes(line), `not a command of the page: ${line}`);
    this.#ran.add(line);
    return line.replaceAll(/<([a-z]+)>/g, (_, name: string) => {
      const place = places[name];
      assert.ok(place !== undefined, `${line}: what is <${name}>?`);
      return place;
    });
  }

  codeOf(form: RegExp): readonly string[] {
    return codeOf(this.#page.text).filter(code => form.test(code));
  }

  leftOut(): readonly string[] {
    return this.#page.commands.filter(command => !this.#ran.has(command));
  }

  query(expr: string) {
    return this.#installation.prometheus.query(expr.replaceAll(/\[\d+[mh]\]/g, WINDOW));
  }

  #ask() {
    return this.query(RULES.get(this.#page.alert)?.expr ?? '');
  }
}

type Attempt = (page: Procedure, t: ExecutionContext) => Promise<void>;

export function proceduresOn(
  installation: Installation,
  test: SerialFn,
  skip: string | false = SKIP,
): (alert: string, attempt: Attempt) => void {
  const tried = test.skipIf(isNotTested(skip));
  return (alert, attempt) =>
    tried(alert, async t => {
      const page = PAGES.get(alert);
      assert.ok(page !== undefined, `no page ${alert}`);
      const procedure = new Procedure(installation, page);
      await attempt(procedure, t);
      t.deepEqual(procedure.leftOut(), [], `commands of ${alert} that were not run`);
    });
}
