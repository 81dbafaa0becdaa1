/** The core's documents about the interface as pages for people. */
import type { DocumentPages } from '../../core/http/http-interface.ts';
import { renderDocsPage } from './docs-page.ts';
import { renderErrorsPage } from './errors-page.ts';
import { HTML_PAGE_HEADERS } from './html-page.ts';

export const documentPages: DocumentPages = {
  headers: HTML_PAGE_HEADERS,
  renderInterface: renderDocsPage,
  renderErrors: renderErrorsPage,
};
