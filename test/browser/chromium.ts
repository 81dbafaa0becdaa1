/** Debian's Chromium with its own profile; it resolves only localhost. */
import assert from 'node:assert/strict';
import { AxeBuilder } from '@axe-core/playwright';
import { type Browser, type BrowserContext, chromium, type Page } from 'playwright-core';
import { findProgram } from '../support/foreign-program.ts';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];
const LAUNCH_MS_MAX = 60_000;
/** For each wait: a busy machine takes ten times as long as an idle one. */
const WAIT_MS_MAX = 30_000;

export function findChromium(): string | undefined {
  return NAMES.map(findProgram).find(program => program !== undefined);
}

/** With `MATTING_TEST_REQUIRE_BROWSER` a missing Chromium is a failure. */
export function skipWithoutChromium(): string | false {
  if (findChromium() !== undefined || process.env.MATTING_TEST_REQUIRE_BROWSER) return false;
  return 'no Chromium here: install the package chromium';
}

export function launchChromium(): Promise<Browser> {
  const executablePath = findChromium();
  assert.ok(executablePath, 'MATTING_TEST_REQUIRE_BROWSER is set and there is no Chromium');
  return chromium.launch({
    executablePath,
    timeout: LAUNCH_MS_MAX,
    // The sandbox does not work as root.
    chromiumSandbox: process.getuid?.() !== 0,
    args: [
      '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1',
      '--disable-dev-shm-usage',
    ],
  });
}

export interface VisitorOptions {
  /** Allowed origins, such as `http://localhost:8080`; relative paths use the first. */
  readonly origins: readonly [string, ...string[]];
  readonly theme?: 'light' | 'dark';
  readonly locale?: 'en-GB' | 'zh-CN';
  readonly width?: number;
  readonly height?: number;
  /** Default: UTC. */
  readonly timezone?: string;
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

  async signInAs(cookies: ReadonlyMap<string, string>): Promise<void> {
    // Cookies ignore ports, and Chromium accepts secure ones only for https.
    const url = this.#origins[0].replace(/^http:/, 'https:').replace(/:\d+$/, '');
    const of = { url, secure: true, httpOnly: true, sameSite: 'Lax' } as const;
    await this.context.addCookies([...cookies].map(([name, value]) => ({ name, value, ...of })));
  }

  async go(place: string): Promise<number> {
    const answer = await this.page.goto(new URL(place, this.#origins[0]).href);
    return answer?.status() ?? 0;
  }

  /** Problems since the last call: script errors, CSP violations, foreign hosts. */
  takeProblems(): string[] {
    return this.#problems.splice(0);
  }

  /** Serious or critical by axe (WCAG 2.2 AA), a line each. */
  async seriousViolations(): Promise<string[]> {
    const tags = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];
    const { violations } = await new AxeBuilder({ page: this.page }).withTags(tags).analyze();
    return violations
      .filter(({ impact }) => impact === 'serious' || impact === 'critical')
      .map(({ id, help, nodes }) => `${id}: ${help}: ${nodes.map(n => n.html).join(' | ')}`);
  }

  /** CSS pixels beyond the window. */
  async overflow(): Promise<number> {
    const widths = await this.page.evaluate<[number, number]>(
      '[document.documentElement.scrollWidth, document.documentElement.clientWidth]',
    );
    return widths[0] - widths[1];
  }

  /** CSS pixels by which the widest table exceeds its scrolling box. */
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
      // A refused form answers 4xx, which Chromium logs as an error.
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
