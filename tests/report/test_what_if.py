"""What-if edits on the page: cards follow, undo stands beside them, and only what is possible is offered."""

import pytest

import planner
from planner.installation import targets_folder
from planner.report.offers import offers
from planner.report.view import view_of
from tests.report.pages import expect, press, says, state


@pytest.fixture(scope="module")
def plan(annotated):
    return planner.plan(annotated, "litert-int8")


@pytest.fixture(scope="module")
def again(plan):
    return planner.replan(plan, {"kernels": {"join/concat": "float"}})


def card(page, title):
    return page.locator(".cards .card", has=page.get_by_role("heading", name=title, exact=True))


def test_cards_go_from_old_to_new_and_back(show, full, again):
    plan, given = full
    page = show(plan, given=given)
    before = page.locator("#cards").inner_html()
    page.evaluate("planPage.edit({of: 'kernel', at: 'join/concat', value: 'float'})")
    page.evaluate("(view) => planPage.show(view)", view_of(again, plan))
    says(card(page, "Kernels quantized"), "15 of 15 → 14 of 15")
    says(card(page, "Kernels quantized"), "1 kernel is in float on request: Concat (1)")
    says(card(page, "Cost"), f"{plan.cost:,.0f} → {again.cost:,.0f}")
    expect(card(page, "Quality").locator(".figure")).to_have_text("not measured")
    assert card(page, "Weights").get_attribute("class") == "card"  # as it was
    page.evaluate("planPage.measured({text: '40.00 dB', grade: 'good', measured_on: 'on 9 samples'})")
    says(card(page, "Quality"), "→ 40.00 dB")
    says(card(page, "Quality"), "good")
    page.locator("#what-if").get_by_role("button", name="undo").click()
    page.evaluate("planPage.show(null)")
    assert page.locator("#what-if").is_hidden()
    assert page.locator("#cards").inner_html() == before


@pytest.mark.parametrize("width", [390, 1440])
def test_the_way_back_stays_in_sight(show, plan, width):
    page = show(plan, viewport={"width": width, "height": 700})
    page.evaluate("planPage.edit({of: 'kernel', at: 'head/gemm', value: 'float'})")
    page.evaluate("window.scrollTo(0, document.body.scrollHeight)")
    undo = page.locator("#what-if").get_by_role("button", name="undo")
    expect(undo).to_be_in_viewport()
    press(page, "u")
    assert page.locator("#what-if").is_hidden()


def test_a_kernel_is_offered_the_other_variants_of_the_target(show, plan):
    page = show(plan)
    buttons = page.locator("#view-panel > div > .asks button")
    for name, others in (("stem/conv", ["float", "i16"]), ("head/flatten", ["float"])):
        page.evaluate("(name) => planPage.select(name)", name)
        assert buttons.all_inner_texts() == others
        for other in others:
            row = planner.replan(plan, {"kernels": {name: other}}).kernels[name].row
            assert (row is None) == (other == "float")


def test_a_port_is_offered_what_a_variant_has_there(show, plan):
    page = show(plan)
    page.evaluate("planPage.select('stem/conv')")
    asks = page.locator("#view-panel .why .asks button")
    for port, others in (("in[0]", ["fix this type", "float", "i16"]), ("in[1]", ["float"])):
        page.locator("#view-panel .ports button", has_text=port).first.click()
        assert asks.all_inner_texts() == others
    page.evaluate("planPage.select('@model.out[0]')")
    page.locator("#view-panel .ports button", has_text="out[0]").first.click()
    assert asks.all_inner_texts() == ["i8", "i16"]
    assert state(page)["address"] == "@model.out[0]"


def test_a_plan_from_a_file_offers_the_same(plan):
    assert offers(planner.plan_from_json(plan.to_json())) == offers(plan)


def test_without_the_target_the_variants_in_use_are_offered(plan, tmp_path):
    path = tmp_path / "own.yaml"
    text = (targets_folder() / "litert-int8.yaml").read_text("utf-8")
    path.write_text(text.replace("id: litert-int8", "id: own", 1), encoding="utf-8")
    own = planner.plan(plan.annotated, path)
    assert offers(own)["stem/conv"].kernel == ("float", "i8", "i16")
    assert offers(planner.plan_from_json(own.to_json()))["stem/conv"].kernel == ("float", "i8")
