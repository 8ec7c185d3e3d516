"""Drives `canonc lsp` with the client of pygls, as an editor would: the program, its pipes, the protocol.

CANONC names the program.
"""

import asyncio
import os
import tempfile
import unittest
from pathlib import Path

from lsprotocol import types
from pygls.lsp.client import LanguageClient

ROOT = Path(__file__).resolve().parents[2]
CANONC = os.environ["CANONC"]


class Editor(LanguageClient):
    """A client that keeps diagnostics."""

    def __init__(self):
        super().__init__("canonc-tests", "1")
        self.published: dict[str, tuple[int | None, list[types.Diagnostic]]] = {}
        self.arrived = asyncio.Event()

        @self.feature(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def publish(params: types.PublishDiagnosticsParams):
            self.published[params.uri] = (params.version, params.diagnostics)
            self.arrived.set()

        @self.feature(types.CLIENT_REGISTER_CAPABILITY)
        def register(params: types.RegistrationParams):
            return None

    async def diagnostics(self, uri: str, version: int) -> list[types.Diagnostic]:
        while self.published.get(uri, (None, []))[0] != version:
            self.arrived.clear()
            await asyncio.wait_for(self.arrived.wait(), 60)
        return list(self.published[uri][1])

    def open(self, path: Path, text: str | None = None) -> str:
        uri = path.as_uri()
        text = path.read_text() if text is None else text
        item = types.TextDocumentItem(uri=uri, language_id="canon", version=1, text=text)
        self.text_document_did_open(types.DidOpenTextDocumentParams(text_document=item))
        return uri

    def change(self, uri: str, version: int, text: str):
        document = types.VersionedTextDocumentIdentifier(uri=uri, version=version)
        whole = [types.TextDocumentContentChangeWholeDocument(text=text)]
        self.text_document_did_change(
            types.DidChangeTextDocumentParams(text_document=document, content_changes=whole)
        )


def request_at(text: str, needle: str, kind, uri: str, **more):
    """The parameters of a question about the first letter of a text."""
    before = text[: text.index(needle)]
    line = before.count("\n")
    column = len(before.rsplit("\n", 1)[-1].encode("utf-16-le")) // 2
    document = types.TextDocumentIdentifier(uri=uri)
    return kind(text_document=document, position=types.Position(line=line, character=column), **more)


class Client(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.folder = tempfile.TemporaryDirectory()
        os.environ["XDG_CACHE_HOME"] = self.folder.name
        self.editor = Editor()
        await self.editor.start_io(CANONC, "lsp")
        workspace = types.WorkspaceClientCapabilities(
            did_change_watched_files=types.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True)
        )
        document = types.TextDocumentClientCapabilities(
            publish_diagnostics=types.PublishDiagnosticsClientCapabilities(version_support=True)
        )
        answer = await self.editor.initialize_async(
            types.InitializeParams(
                capabilities=types.ClientCapabilities(workspace=workspace, text_document=document),
                root_uri=ROOT.as_uri(),
            )
        )
        self.assertEqual(answer.server_info.name, "canonc")
        self.assertEqual(answer.capabilities.position_encoding, types.PositionEncodingKind.Utf16)
        self.editor.initialized(types.InitializedParams())

    async def asyncTearDown(self):
        await self.editor.shutdown_async(None)
        self.editor.exit(None)
        code = await asyncio.wait_for(self.editor._server.wait(), 60)
        self.assertEqual(code, 0)
        self.folder.cleanup()

    async def test_an_architecture(self):
        path = ROOT / "arch/llamacanon_demo.canon"
        text = path.read_text()
        uri = self.editor.open(path)
        self.assertEqual(await self.editor.diagnostics(uri, 1), [])
        # An error appears, with its help, and disappears.
        wrong = text.replace("canon A", "canon Z", 1)
        self.editor.change(uri, 2, wrong)
        [diagnostic] = await self.editor.diagnostics(uri, 2)
        self.assertEqual((diagnostic.code, diagnostic.source), ("unknown-slot", "canonc"))
        self.assertIn("help: ", diagnostic.message)
        self.editor.change(uri, 3, text)
        self.assertEqual(await self.editor.diagnostics(uri, 3), [])
        # The base is in another file.
        ask = request_at(text, "llama_demo with", types.DefinitionParams, uri)
        [location] = await self.editor.text_document_definition_async(ask)
        self.assertEqual(location.uri, (ROOT / "arch/llama_demo.canon").as_uri())
        hover = await self.editor.text_document_hover_async(
            request_at(text, "llamacanon_demo", types.HoverParams, uri)
        )
        self.assertIn("parameters, 2 layers", hover.contents.value)
        tokens = await self.editor.text_document_semantic_tokens_full_async(
            types.SemanticTokensParams(text_document=types.TextDocumentIdentifier(uri=uri))
        )
        self.assertEqual(len(tokens.data) % 5, 0)
        self.assertGreater(len(tokens.data), 20)

    async def test_text_beyond_ascii(self):
        text = "// 𝄞 é\n/* 𝄞 */ block f(x) { x }\n"
        uri = self.editor.open(Path(self.folder.name) / "a.canon", text)
        diagnostics = await self.editor.diagnostics(uri, 1)
        self.assertEqual((diagnostics[0].range.start.line, diagnostics[0].range.start.character), (1, 0))
        text = "// 𝄞 é\nblock f(x) { /// 𝄞\n  y = x + x\n  y }\n"
        self.editor.change(uri, 2, text)
        edits = await self.editor.text_document_formatting_async(
            types.DocumentFormattingParams(
                text_document=types.TextDocumentIdentifier(uri=uri),
                options=types.FormattingOptions(tab_size=2, insert_spaces=True),
            )
        )
        self.assertLessEqual(len(edits), 1)

    async def test_renaming_and_completion(self):
        folder = Path(self.folder.name)
        text = "mlp f(x) {\n  up = linear a (x, dim)\n  linear b (up, dim)\n}\n"
        uri = self.editor.open(folder / "a.canon", text)
        await self.editor.diagnostics(uri, 1)
        ask = request_at(text, "up, dim", types.RenameParams, uri, new_name="high")
        edit = await self.editor.text_document_rename_async(ask)
        self.assertEqual(len(edit.changes[uri]), 2)
        completions = await self.editor.text_document_completion_async(
            request_at(text, "x, dim", types.CompletionParams, uri)
        )
        labels = {item.label for item in completions.items}
        self.assertLessEqual({"x", "dim", "bias", "sigmoid"}, labels)

    async def test_a_recipe_and_a_lock(self):
        path = ROOT / "recipes/demo_llama.toml"
        text = path.read_text()
        uri = self.editor.open(path)
        self.assertEqual(await self.editor.diagnostics(uri, 1), [])
        hover = await self.editor.text_document_hover_async(request_at(text, "lr = ", types.HoverParams, uri))
        self.assertIn("Base learning rate", hover.contents.value)
        path = ROOT / "lockfiles/demo.lock"
        text = path.read_text()
        uri = self.editor.open(path)
        self.assertEqual(await self.editor.diagnostics(uri, 1), [])
        hover = await self.editor.text_document_hover_async(
            request_at(text, "demo-llama-seed1 =", types.HoverParams, uri)
        )
        self.assertIn("the id of one run", hover.contents.value)


if __name__ == "__main__":
    unittest.main()
