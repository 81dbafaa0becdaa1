/** Debian's Chromium with a profile of its own. It resolves no name but localhost. */
import assert from 'node:assert/strict';
import { AxeBuilder } from '@axe-core/playwright';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { findProgram } from '../support/foreign-program.ts';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];
const LAUNCH_MS_MAX = 60_000;
/** Each wait of a page has it: a machine with busy cores takes ten times what an idle one takes. */
const WAIT_MS_MAX = 30_000;

/** Undefined: this machine has none. */
export function findChromium(): string | undefined {
  return NAMES.map(findProgram).find(program => program !== undefined);
}

/** False: it runs. With `MATTING_TEST_REQUIRE_BROWSER` a machine without Chromium fails instead. */
export function skipWithoutChromium(): string | false {
  if (findChromium() !== undefined || process.env.MATTING_TEST_REQUIRE_BROWSER) return false;
  return 'no Chromium here: install the package chromium';
}

/** Rejects where there is none. Closed by its caller. */
export function launchChromium(): Promise<Browser> {
  const executablePath = findChromium();
  assert.ok(executablePath, 'MATTING_TEST_REQUIRE_BROWSER is set and there is no Chromium');
  return chromium.launch({
    executablePath,
    timeout: LAUNCH_MS_MAX,
    // The sandbox needs a user of its own; root has none to give.
    chromiumSandbox: process.getuid?.() !== 0,
    args: [
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1',
      '--disable-dev-shm-usage',
    ],
  });
}

export interface VisitorOptions {
  /** Pages may be loaded from these, such as `http://localhost:8080`; paths are on the first. */
  readonly origins: readonly [string, ...string[]];
  readonly theme?: 'light' | 'dark';
  readonly locale?: 'en-GB' | 'zh-CN';
  /** The size is in CSS pixels. */
  readonly width?: number;
  readonly height?: number;
  /** The zone is UTC where absent. */
  readonly timezone?: string;
  /** False: scripts are off. */
  readonly scripts?: boolean;
}

export class Visitor {
  readonly page: Page;
  readonly context: BrowserContext;
  readonly #origins: readonly [string, ...string[]];
  readonly #problems: string[] = [];

  private constructor(
    context: BrowserContext,
    page: Page,
    origins: readonly [string, ...string[]],
  ) {
    this.context = context;
    this.page = page;
    this.#origins = origins;
  }

  static async open(browser: Browser, options: VisitorOptions): Promise<Visitor> {
    const { width = 1280, height = 900 } = options;
    const context = await browser.newContext({
      viewport: { width, height },
      colorScheme: options.theme ?? 'light',
      locale: options.locale ?? 'en-GB',
      timezoneId: options.timezone ?? 'UTC',
      javaScriptEnabled: options.scripts ?? true,
      reducedMotion: 'reduce',
      acceptDownloads: true,
    });
    context.setDefaultTimeout(WAIT_MS_MAX);
    const visitor = new Visitor(context, await context.newPage(), options.origins);
    visitor.#watch();
    return visitor;
  }

  /** Signs in with the cookies of a session that was made elsewhere. */
  async signInAs(cookies: ReadonlyMap<string, string>): Promise<void> {
    // A cookie is not of a port, and Chromium takes a secure one for an https address alone.
    const url = this.#origins[0].replace(/^http:/, 'https:').replace(/:\d+$/, '');
    const of = { url, secure: true, httpOnly: true, sameSite: 'Lax' } as const;
    await this.context.addCookies([...cookies].map(([name, value]) => ({ name, value, ...of })));
  }

  async go(place: string): Promise<number> {
    const answer = await this.page.goto(new URL(place, this.#origins[0]).href);
    return answer?.status() ?? 0;
  }

  /** Gives the problems since the last call: script errors, refusals of the policy, other hosts. */
  takeProblems(): string[] {
    return this.#problems.splice(0);
  }

  /** Violations of WCAG 2.2 AA that axe calls serious or critical, one line each. */
  async seriousViolations(): Promise<string[]> {
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
    const { violations } = await new AxeBuilder({ page: this.page }).withTags(tags).analyze();
    return violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(n => n.html).join(' | ')}`);
  }

  /** CSS pixels by which the page is wider than the window. */
  async overflow(): Promise<number> {
    const widths = await this.page.evaluate<[number, number]>(
      '[document.documentElement.scrollWidth, document.documentElement.clientWidth]',
    );
    return widths[0] - widths[1];
  }

  /** CSS pixels by which the widest table is wider than its place: it scrolls by itself. */
  tableOverflow(): Promise<number> {
    return this.page.evaluate<number>(
      `Math.max(0, ...[...document.querySelectorAll('.table')]
        .map(table => table.scrollWidth - table.clientWidth))`,
    );
  }

  close(): Promise<void> {
    return this.context.close();
  }

  #watch(): void {
    const { page, context } = this;
    context.on('weberror', error => this.#problems.push(`script error: ${error.error().message}`));
    page.on('console', message => {
      // A refused form is an answer of 4xx, which Chromium calls an error of its own.
      if (message.type() !== 'error' || /^Failed to load resource/.test(message.text())) return;
      this.#problems.push(`console: ${message.text()}`);
    });
    context.on('request', request => {
      const { protocol, origin } = new URL(request.url());
      if (protocol === 'data:' || protocol === 'blob:' || this.#origins.includes(origin)) return;
      this.#problems.push(`asked another host: ${request.url()}`);
    });
  }
}
